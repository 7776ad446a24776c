"""What a job leaves that was ended from outside: the reason in one sentence, and no process that still writes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from parallelsearch.errors import ResourceError, TrainingError
from parallelsearch.machine.preflight import Space
from parallelsearch.runs.checkpoints import Checkpoints
from parallelsearch.training.process import job_failure as module
from parallelsearch.training.process.job_failure import job_failure, log_size
from parallelsearch.training.process.leftovers import VARIABLE, end_leftovers

# As Ray 2.60 writes them into veRL's log when its GCS or its raylet is killed.
GCS = "rpc_client.h:204: Failed to connect to GCS within 60 seconds. GCS may have been killed. It's either GCS is ..."
RAYLET = "(raylet) Raylet is terminated. Termination is unexpected. Possible reasons include: (1) SIGKILL by the user"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "verl.log").write_text(f"{GCS}\nthat was the job before\n")
    return tmp_path


def failure(run: Path, policy: Path, *said: str, code: int = 1) -> Exception:
    """The error of a job that said that."""
    before = log_size(run)
    with (run / "verl.log").open("a") as stream:
        stream.writelines(f"{line}\n" for line in said)
    return job_failure(run, code, Checkpoints(run / "checkpoints", ranks=1), 9, policy, before)


@pytest.mark.parametrize("line", [GCS, RAYLET])
def test_a_lost_ray_is_the_reason_where_this_jobs_log_says_so(run: Path, written_by_verl: Path, line: str) -> None:
    error = failure(run, written_by_verl / "policy", line, "the end")
    assert isinstance(error, TrainingError)
    reason = "because a process of Ray was ended; the same command goes on from there; the end of "
    assert str(error).startswith(f"veRL ended with exit code 1 after 0 saved of 9 steps, {reason}")
    assert "\nthe end" in str(error)
    later = failure(run, written_by_verl / "policy", "ValueError: something else", code=-9)
    assert str(later).startswith(
        f"veRL ended with exit code -9 after 0 saved of 9 steps; the end of {run / 'verl.log'}"
    )


@pytest.mark.parametrize("sign", ["words", "room"])
def test_a_full_disk_is_the_reason_by_its_words_or_by_the_room_that_is_left(
    run: Path, written_by_verl: Path, monkeypatch: pytest.MonkeyPatch, sign: str
) -> None:
    half = run / "checkpoints" / "global_step_3" / "actor"
    half.mkdir(parents=True)
    (half / "model_world_size_1_rank_0.pt").write_bytes(b"half")
    said = ["OSError: [Errno 28] No space left on device"] if sign == "words" else []
    if sign == "room":
        monkeypatch.setattr(module, "disk_available", lambda folder: Space(100, f"the disk of {folder}"))
    error = failure(run, written_by_verl / "policy", *said)
    assert isinstance(error, ResourceError)
    assert str(error).startswith(f"the disk of {run} is full: veRL ended with exit code 1 after 0 saved of 9 steps, ")
    assert "and start the same command again: what is complete is kept" in str(error)
    assert not half.exists()


@pytest.fixture
def sleeping() -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Started by a test, by name."""
    started: dict[str, subprocess.Popen[bytes]] = {}
    yield started
    for process in started.values():
        process.kill()
        process.wait()


def test_what_a_killed_job_left_is_ended_and_nothing_else(
    tmp_path: Path, sleeping: dict[str, subprocess.Popen[bytes]], capsys: pytest.CaptureFixture[str]
) -> None:
    for name, logged in (
        ("left", tmp_path / "seed1" / "data" / "verl-metrics-from-1.jsonl"),
        ("another run's", tmp_path / "seed10" / "data" / "verl-metrics-from-1.jsonl"),
    ):
        sleeping[name] = subprocess.Popen(["sleep", "300"], env={**os.environ, VARIABLE: str(logged)})
    sleeping["nobody's"] = subprocess.Popen(["sleep", "300"])
    assert end_leftovers(tmp_path / "seed2") == 0 and capsys.readouterr().out == ""
    assert end_leftovers(tmp_path / "seed1") == 1
    assert capsys.readouterr().out == f"{tmp_path / 'seed1'}: ended 1 processes that a killed job had left\n"
    assert sleeping["left"].wait(10) == -signal.SIGKILL
    assert sleeping["another run's"].poll() is None and sleeping["nobody's"].poll() is None
