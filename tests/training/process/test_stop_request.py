"""A job is asked to end by a signal or by its time limit, and its processes do not end before it."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from parallelsearch.cli import main
from parallelsearch.errors import StoppedEarly
from parallelsearch.machine import slurm
from parallelsearch.training.process.child_process import end_child, running_child, start_child
from parallelsearch.training.process.stop_request import StopRequest, stopped_early

WAITING = "import subprocess, time; print(subprocess.Popen(['sleep', '300']).pid, flush=True); time.sleep(300)"


@pytest.fixture(autouse=True)
def _outside_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_asks_and_a_second_sigterm_ends(tmp_path: Path, number: signal.Signals) -> None:
    with StopRequest(tmp_path / "data" / "stop") as stop:
        assert not stop.requested and not (tmp_path / "data").exists()
        os.kill(os.getpid(), number)
        assert stop.requested and stop.reason == f"it was sent {number.name}"
        assert (tmp_path / "data" / "stop").read_text() == f"it was sent {number.name}\n"
        os.kill(os.getpid(), signal.SIGUSR1)
        with pytest.raises(SystemExit) as ended:
            os.kill(os.getpid(), signal.SIGTERM)
        assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_request_of_an_earlier_job_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "stop").write_text("it was sent SIGTERM\n")
    with StopRequest(tmp_path / "stop") as stop:
        assert not stop.requested and not (tmp_path / "stop").exists()


def test_the_time_limit_asks_while_the_longest_step_and_saving_still_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "43")
    monkeypatch.setattr(slurm, "seconds_left", lambda job: {"43": 200.0}[job])
    with StopRequest(checkpoint_bytes=0) as stop:
        stop.step_took(90)  # 60 s to save and 1.5 * 90 s: 195 s
        assert not stop.requested
        stop.step_took(95)  # 202.5 s
        assert stop.requested
        assert stop.reason == "its Slurm job 43 reaches its time limit in 200 s"
    with StopRequest(checkpoint_bytes=45_000_000_000) as stop:  # 150 s to write
        assert stop.requested


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 5),
        ("1:05", 65),
        ("2:00:01", 7201),
        ("3-04:00:00", 273_600),
        ("UNLIMITED", None),
        ("INVALID", None),
        ("", None),
    ],
)
def test_squeues_durations(text: str, seconds: float | None) -> None:
    assert slurm.parse_duration(text) == seconds


def test_a_job_that_was_asked_to_end_says_what_is_saved_and_exits_with_75(monkeypatch, capsys) -> None:
    error = stopped_early(Path("results/train/a/seed0"), 3, 9, "it was sent SIGTERM")
    assert "step 3 of 9 is saved; the same command goes on from there" in str(error)

    def ended(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("parallelsearch.cli.typer.main.get_command", lambda app: type("C", (), {"main": ended})())
    with pytest.raises(SystemExit) as code:
        main(["train"])
    assert code.value.code == StoppedEarly.exit_code == 75
    assert "it was sent SIGTERM" in capsys.readouterr().err


def test_slurms_signals_do_not_reach_what_a_shielded_child_started(tmp_path: Path) -> None:
    with running_child([sys.executable, "-c", WAITING], tmp_path / "log", dict(os.environ), shielded=True) as child:
        grandchild = _first_number(tmp_path / "log")
        for pid in (child.pid, grandchild):
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGUSR1)
        time.sleep(0.5)
        assert child.poll() is None
        os.kill(grandchild, 0)
        assert "T" not in _state(grandchild) and "Z" not in _state(grandchild)
    assert child.returncode == -signal.SIGINT
    os.kill(grandchild, signal.SIGKILL)  # of another session than Ray's, which follows its driver


def test_a_shielded_child_is_ended_by_sigint_even_where_a_shell_ignores_it(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        child = start_child([sys.executable, "-c", WAITING], tmp_path / "log", shielded=True)
        grandchild = _first_number(tmp_path / "log")
        end_child(child, shielded=True)
        assert child.returncode == -signal.SIGINT
        os.kill(grandchild, signal.SIGKILL)
    finally:
        signal.signal(signal.SIGINT, before)


def _first_number(log: Path) -> int:
    end = time.monotonic() + 20
    while "\n" not in (log.read_text() if log.exists() else ""):
        assert time.monotonic() < end
        time.sleep(0.05)
    return int(log.read_text().splitlines()[0])


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
