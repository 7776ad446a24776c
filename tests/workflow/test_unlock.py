"""What a killed Snakemake leaves behind: its lock, and jobs that go on without it."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from checkout import ENVIRONMENT, ROOT

SCRIPT = ROOT / "workflow" / "unlock-after-kill.sh"
# The job is a real verb that runs until it is stopped: a download from a server that never answers.
SNAKEFILE = """
rule slow:
    output: "out.txt"
    log: "results/logs/slow/job.log"
    shell: "parallelsearch fetch http://127.0.0.1:PORT/x {output} > {log} 2>&1"
"""


@pytest.mark.skipif(shutil.which("pgrep") is None, reason="pgrep is not installed")
def test_a_running_snakemake_is_left_alone_and_a_killed_ones_job_and_lock_are_removed(tmp_path: Path) -> None:
    import socket

    silent = socket.create_server(("127.0.0.1", 0))
    (tmp_path / "Snakefile").write_text(SNAKEFILE.replace("PORT", str(silent.getsockname()[1])))
    running = subprocess.Popen(
        ["snakemake", "-c1"], cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait(lambda: bool(_locks(tmp_path)) and bool(_jobs(tmp_path)))
        refused = _unlock(tmp_path)
        assert refused.returncode == 1 and f"process {running.pid}" in refused.stderr
        assert _locks(tmp_path) and _jobs(tmp_path)
    finally:
        running.kill()
        running.wait()
    assert _locks(tmp_path) and _jobs(tmp_path)
    unlocked = _unlock(tmp_path)
    assert unlocked.returncode == 0 and "Stopping process" in unlocked.stdout
    assert not _locks(tmp_path) and not _jobs(tmp_path)
    assert _unlock(tmp_path).stdout == ""
    silent.close()


def _locks(folder: Path) -> list[Path]:
    return list((folder / ".snakemake" / "locks").glob("*"))


def _jobs(folder: Path) -> list[str]:
    """Processes named parallelsearch that run in `folder`."""
    found = subprocess.run(["pgrep", "-x", "parallelsearch"], capture_output=True, text=True).stdout.split()
    return [pid for pid in found if _cwd(pid) == folder]


def _cwd(pid: str) -> Path | None:
    try:
        return Path(f"/proc/{pid}/cwd").readlink()
    except OSError:
        return None


def _unlock(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
