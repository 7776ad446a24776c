"""A training job that has to end early: it is asked to by SIGTERM or SIGUSR1, or its Slurm job nears its time limit.

The job then saves a checkpoint after the step it is in and ends with exit code 75 (EX_TEMPFAIL of sysexits.h: try
again); the same command goes on from there. A second SIGTERM ends it at once.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from types import FrameType
from typing import Any

from parallelsearch.errors import StoppedEarly
from parallelsearch.machine import slurm

STOP_FILE = "stop"  # in the run's data/: the training loop looks for it after each step
ASK_SLURM_SECONDS = 30.0
SAVE_SECONDS = 60.0  # for the end of a job beside writing its checkpoint
WRITE_BYTES = 300_000_000  # a second, to a shared file system
STEPS_AHEAD = 1.5  # a step may take so many times the longest one until now


class StopRequest:
    """Whether a job has to end, and why. `reason` is a part of a sentence.

    file: written when it has to, for processes that cannot ask this one. checkpoint_bytes: what saving writes.
    """

    def __init__(self, file: Path | None = None, checkpoint_bytes: int = 0) -> None:
        self.reason: str | None = None
        self._file = file
        self._save_seconds = SAVE_SECONDS + checkpoint_bytes / WRITE_BYTES
        self._longest_step = 0.0
        self._job = slurm.own_job()
        self._end: float | None = None  # of the Slurm job, on time.monotonic()
        self._asked = float("-inf")
        self._previous: dict[int, Any] = {}
        if file:
            file.unlink(missing_ok=True)

    def __enter__(self) -> StopRequest:
        for number in (signal.SIGTERM, signal.SIGUSR1):
            self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def step_took(self, seconds: float) -> None:
        """Another step, saved or not, will have to fit before the end."""
        self._longest_step = max(self._longest_step, seconds)

    @property
    def requested(self) -> bool:
        """Looks at the clock as well; the file is there from the first time on that this is true."""
        if self.reason is None and (left := self._seconds_left()) is not None:
            need = self._save_seconds + STEPS_AHEAD * self._longest_step
            if left < need:
                self.reason = f"its Slurm job {self._job} reaches its time limit in {left:.0f} s"
        if self.reason is not None and self._file and not self._file.exists():
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(self.reason + "\n", encoding="utf-8")
        return self.reason is not None

    def _seconds_left(self) -> float | None:
        if self._job is None:
            return None
        now = time.monotonic()
        if now - self._asked > ASK_SLURM_SECONDS:  # the limit of a running job can be changed
            left = slurm.seconds_left(self._job)
            self._end = None if left is None else now + left
            self._asked = now
        return None if self._end is None else self._end - now

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.reason is not None and number == signal.SIGTERM:
            raise SystemExit(128 + number)
        self.reason = self.reason or f"it was sent {signal.Signals(number).name}"


def stopped_early(folder: Path, saved: int, steps: int, reason: str) -> StoppedEarly:
    """The end of a job that was asked to end: what is saved, and how to go on."""
    kept = f"step {saved} of {steps} is saved" if saved else f"no step of {steps} was saved yet"
    return StoppedEarly(f"{folder}: the job ended because {reason}; {kept}; the same command goes on from there.")
