"""One writer for a run: refused while another writes, taken over from one that is gone, never lost to a race."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from parallelsearch.errors import RunInUseError
from parallelsearch.runs.run_lock import Holder, earlier_job, lock_path, only_writer, read_holder

HOLD = """
import sys, time
from pathlib import Path
from parallelsearch.runs.run_lock import only_writer
with only_writer(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(300)
"""
RACE = """
import sys, time
from pathlib import Path
from parallelsearch.errors import RunInUseError
from parallelsearch.runs.run_lock import only_writer
run, total = Path(sys.argv[1]), Path(sys.argv[2])
done = 0
while done < 20:
    try:
        with only_writer(run):
            count = int(total.read_text())
            time.sleep(0.001)
            total.write_text(str(count + 1))
            done += 1
    except RunInUseError:
        time.sleep(0.002)
"""


@pytest.fixture(autouse=True)
def _outside_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


def squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A squeue that prints what Slurm's would; the Slurm tests ask the real one."""
    (tmp_path / "bin").mkdir(exist_ok=True)
    path = tmp_path / "bin" / "squeue"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")


def leave(run: Path, **changes: object) -> None:
    """A lock that somebody else left."""
    own = {"host": socket.gethostname(), "pid": os.getpid(), "started": 1, "slurm_job": None, "since": "yesterday"}
    lock_path(run).parent.mkdir(parents=True, exist_ok=True)
    lock_path(run).write_text(json.dumps(own | changes))


def test_a_second_writer_is_refused_with_the_firsts_process_until_that_is_killed(tmp_path: Path) -> None:
    run = tmp_path / "search-r1" / "seed0"
    first = subprocess.Popen([sys.executable, "-c", HOLD, str(run)], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None and first.stdout.readline() == "held\n"
    with pytest.raises(RunInUseError, match=f"seed0 is being written by process {first.pid} .* wait for it or end it"):
        only_writer(run).__enter__()
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert lock_path(run).exists()
    with only_writer(run):
        holder = read_holder(run)
        assert holder is not None and holder.pid == os.getpid()
    assert [path.name for path in run.parent.iterdir()] == []


def test_only_one_of_several_processes_writes_at_a_time(tmp_path: Path) -> None:
    run, total = tmp_path / "seed0", tmp_path / "total"
    total.write_text("0")
    several = [subprocess.Popen([sys.executable, "-c", RACE, str(run), str(total)]) for _ in range(3)]
    assert [process.wait(120) for process in several] == [0, 0, 0]
    assert total.read_text() == "60"


def test_another_process_with_the_number_of_a_gone_one_holds_no_lock(tmp_path: Path) -> None:
    leave(tmp_path / "seed0")  # this process' number, but started at another time
    with only_writer(tmp_path / "seed0"):
        holder = read_holder(tmp_path / "seed0")
        assert holder is not None and (holder.pid, holder.started > 1) == (os.getpid(), True)
    assert not lock_path(tmp_path / "seed0").exists()


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "COMPLETING", "SUSPENDED"])
def test_a_lock_of_a_slurm_job_that_is_still_there_is_kept_wherever_it_runs(tmp_path, monkeypatch, state: str) -> None:
    squeue(tmp_path, monkeypatch, f"echo {state}")
    leave(tmp_path / "seed0", slurm_job="43", host="elsewhere")
    assert earlier_job(tmp_path / "seed0") == "43"
    with pytest.raises(
        RunInUseError, match=r"Slurm job 43 \(on elsewhere since yesterday\); wait .* or end it \(scancel"
    ):
        only_writer(tmp_path / "seed0").__enter__()


@pytest.mark.parametrize(
    "script",
    [
        "echo CANCELLED",
        "echo TIMEOUT",
        "echo NODE_FAIL",
        "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1",
    ],
)
def test_a_lock_of_a_slurm_job_that_has_ended_is_taken_over(tmp_path, monkeypatch, script: str) -> None:
    squeue(tmp_path, monkeypatch, script)
    leave(tmp_path / "seed0", slurm_job="43", host="elsewhere")
    assert earlier_job(tmp_path / "seed0") is None
    with only_writer(tmp_path / "seed0"):
        holder = read_holder(tmp_path / "seed0")
        assert holder is not None and holder.pid == os.getpid() and holder.slurm_job is None


def test_where_slurm_does_not_answer_nobody_writes(tmp_path, monkeypatch) -> None:
    squeue(tmp_path, monkeypatch, "echo 'Unable to contact slurm controller' >&2; exit 1")
    leave(tmp_path / "seed0", slurm_job="43", host="elsewhere")
    with pytest.raises(RunInUseError, match="Slurm job 43"):
        only_writer(tmp_path / "seed0").__enter__()


def test_a_slurm_job_that_was_started_again_on_another_node_goes_on_with_its_own_lock(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "43")
    leave(tmp_path / "seed0", slurm_job="43", host="elsewhere")
    assert earlier_job(tmp_path / "seed0") is None
    with only_writer(tmp_path / "seed0"):
        holder = read_holder(tmp_path / "seed0")
        assert holder == Holder.own() or (holder and holder.slurm_job == "43" and holder.pid == os.getpid())


def test_a_process_on_a_machine_that_cannot_be_asked_is_never_robbed(tmp_path: Path) -> None:
    leave(tmp_path / "seed0", host="elsewhere")
    with pytest.raises(RunInUseError, match=r"where that machine is gone, delete .*seed0\.lock"):
        only_writer(tmp_path / "seed0").__enter__()
