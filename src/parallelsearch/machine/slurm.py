"""What a job asks Slurm: who it is, how long it may still run, and whether another job is still there."""

from __future__ import annotations

import os
import subprocess

# States of a job that runs, will run, or may still write (squeue(1), "JOB STATE CODES").
_ACTIVE = {
    "CONFIGURING", "COMPLETING", "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD",
    "RUNNING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "SUSPENDED",
}  # fmt: skip
_TIMEOUT_SECONDS = 60


def own_job() -> str | None:
    """The number of the Slurm job this process runs in; None outside of one."""
    return os.environ.get("SLURM_JOB_ID") or None


def is_active(job: str) -> bool:
    """Whether a job runs or waits. Where Slurm cannot be asked, it is taken to be."""
    try:
        asked = _squeue("--states=all", f"--jobs={job}", "--format=%T")
    except (OSError, subprocess.TimeoutExpired):
        return True
    if asked.returncode:
        return "Invalid job id" not in asked.stderr  # what squeue says of a job that the controller has forgotten
    return any(state.strip() in _ACTIVE for state in asked.stdout.splitlines())


def seconds_left(job: str) -> float | None:
    """Seconds until a running job reaches its time limit; None where it has none, or Slurm cannot be asked."""
    try:
        asked = _squeue(f"--jobs={job}", "--format=%L")
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_duration(asked.stdout.strip()) if asked.returncode == 0 else None


def own_nodes() -> int | None:
    """Nodes of the Slurm job this process runs in; None outside of one, and where Slurm cannot be asked.

    Snakemake's executor keeps most of Slurm's variables from a job's step, so Slurm itself is asked where they lack.
    """
    if told := os.environ.get("SLURM_JOB_NUM_NODES"):
        return int(told)
    if (job := own_job()) is None:
        return None
    try:
        asked = _squeue(f"--jobs={job}", "--format=%D")
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = asked.stdout.strip()
    return int(found) if found.isdecimal() else None


def parse_duration(text: str) -> float | None:
    """Seconds of squeue's [DAYS-][[HOURS:]MINUTES:]SECONDS; None of anything else (UNLIMITED, INVALID)."""
    days, _, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdecimal() for part in [*parts, *([days] if days else [])]) or len(parts) > 3:
        return None
    seconds = 0.0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return seconds + (int(days) * 86_400 if days else 0)


def _squeue(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["squeue", "--noheader", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
