"""Child processes end with the command that started them: asked, failed, or killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from parallelsearch.training.process.child_process import end_child, start_child

SPAWNING = "import subprocess, sys; p = subprocess.Popen(['sleep', '300']); print(p.pid, flush=True); p.wait()"


def ended(pid: int, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def first_line(path: Path) -> str:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if path.exists() and "\n" in (text := path.read_text()):
            return text.splitlines()[0]
        time.sleep(0.05)
    raise AssertionError(f"{path} stayed empty")


def test_ending_a_child_ends_what_it_started(tmp_path: Path) -> None:
    child = start_child([sys.executable, "-c", SPAWNING], tmp_path / "log")
    grandchild = int(first_line(tmp_path / "log"))
    end_child(child)
    assert child.returncode == -signal.SIGTERM
    assert ended(grandchild)


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path;"
        "from parallelsearch.training.process.child_process import start_child;"
        f"p = start_child(['sleep', '300'], Path({str(tmp_path / 'log')!r})); print(p.pid, flush=True); time.sleep(300)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert not ended(child, seconds=0.5)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert ended(child)


def test_the_output_of_a_child_is_appended_to_its_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("before\n")
    child = start_child([sys.executable, "-c", "import os; print(os.environ['A'])"], tmp_path / "log", {"A": "b"})
    assert child.wait(20) == 0
    assert (tmp_path / "log").read_text() == "before\nb\n"
