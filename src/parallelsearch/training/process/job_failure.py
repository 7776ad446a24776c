"""Why veRL's process ended before its last step: the reason in one sentence where it can be told, and its log's end."""

from __future__ import annotations

from pathlib import Path

from parallelsearch.errors import ResourceError, TrainingError, UserError
from parallelsearch.machine.full_disk import NEXT_STEP, WORDS
from parallelsearch.machine.preflight import disk_available, size
from parallelsearch.runs.checkpoints import Checkpoints
from parallelsearch.training.process.child_process import log_tail

LOG = "verl.log"
# What Ray's own processes say, and what its clients say of them, once one has ended.
OF_RAY = ("GCS may have been killed", "Raylet is terminated", "LocalRayletDiedError", "NodeDiedError")


def log_size(folder: Path) -> int:
    """Bytes of veRL's log in a run's folder, before a job appends to it."""
    log = folder / LOG
    return log.stat().st_size if log.exists() else 0


def job_failure(
    folder: Path, returncode: int | None, checkpoints: Checkpoints, steps: int, policy: Path, log_from: int = 0
) -> UserError:
    """The error to raise for a job in `folder` that ended with `returncode` although `steps` are not saved.

    `log_from`: where this job's part of the log begins. No process of the job may be running any more.
    """
    log = folder / LOG
    with log.open("rb") as stream:
        stream.seek(log_from)
        said = stream.read().decode(errors="replace")
    ended = f"veRL ended with exit code {returncode} after {checkpoints.latest} saved of {steps} steps"
    need, free = checkpoints.bytes_of_one(policy), disk_available(folder).bytes
    if free < need or any(words in said for words in WORDS):
        checkpoints.clean()  # what was half written takes the room that this sentence needs in a log
        return ResourceError(
            f"the disk of {folder} is full: {ended}, {size(free)} were left and a checkpoint takes {size(need)};"
            f" {NEXT_STEP}. Its own words are in {log}."
        )
    reason = ", because a process of Ray was ended; the same command goes on from there" if _of_ray(said) else ""
    return TrainingError(f"{ended}{reason}; the end of {log}:\n{log_tail(log)}")


def _of_ray(said: str) -> bool:
    return any(words in said for words in OF_RAY)
