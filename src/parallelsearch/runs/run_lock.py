"""One writer for the folder of a run: RUN.lock beside it, which names the process and the Slurm job that write there.

A Snakemake that was lost (kill -9, a login node that went down) leaves its Slurm jobs running. The next one submits the
same job again: it is made to wait for the first one (`earlier_job`), and where it starts all the same it is refused.
A lock whose holder is gone is taken over: of a Slurm job Slurm says so, of another process its number and start time.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

from parallelsearch.errors import RunInUseError
from parallelsearch.machine import slurm
from parallelsearch.machine.full_disk import naming_full_disk


@dataclass(frozen=True, slots=True)
class Holder:
    """Who writes. `started` is the process' start time in clock ticks since the machine started."""

    host: str
    pid: int
    started: int
    slurm_job: str | None
    since: str

    @classmethod
    def own(cls) -> Holder:
        """This process."""
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        return cls(socket.gethostname(), os.getpid(), _start_time(os.getpid()) or 0, slurm.own_job(), now)

    @property
    def is_gone(self) -> bool:
        """Whether it certainly writes no more."""
        if self.slurm_job and self.slurm_job != slurm.own_job():
            return not slurm.is_active(self.slurm_job)
        if self.host == socket.gethostname():
            return _start_time(self.pid) != self.started
        return self.slurm_job is not None  # this job, started anew on another node

    def __str__(self) -> str:
        if self.slurm_job:
            return f"Slurm job {self.slurm_job} (on {self.host} since {self.since})"
        return f"process {self.pid} (on {self.host} since {self.since})"


def lock_path(run: Path) -> Path:
    """The lock beside the folder of a run."""
    return run.with_name(f"{run.name}.lock")


def read_holder(run: Path) -> Holder | None:
    """Who holds the lock of a run; None where nobody does."""
    try:
        return Holder(**json.loads(lock_path(run).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def earlier_job(run: Path) -> str | None:
    """The number of another Slurm job that still writes to a run, or waits to."""
    holder = read_holder(run)
    if holder is None or holder.slurm_job in (None, slurm.own_job()):
        return None
    return holder.slurm_job if slurm.is_active(str(holder.slurm_job)) else None


@contextmanager
def only_writer(run: Path) -> Iterator[None]:
    """Holds the lock of a run while the block runs; RunInUseError names who else does, and what to do."""
    path, own = lock_path(run), Holder.own()
    path.parent.mkdir(parents=True, exist_ok=True)
    while not _created(path, own):
        holder = read_holder(run)
        if holder is None:
            continue  # released meanwhile
        if not holder.is_gone:
            raise RunInUseError(f"{run} is being written by {holder}; {_next_step(holder, path)}.")
        _remove(path, holder)
    try:
        yield
    finally:
        _remove(path, own)


def _next_step(holder: Holder, path: Path) -> str:
    if holder.slurm_job:
        job = holder.slurm_job
        return f"wait for it (squeue --jobs={job}) or end it (scancel {job}), and start this again"
    if holder.host == socket.gethostname():
        return "wait for it or end it, and start this again"
    return f"wait for it or end it; where that machine is gone, delete {path}"


def _created(path: Path, own: Holder) -> bool:
    """Whether the lock could be made: a link to a complete file, which succeeds for one of several at once."""
    draft = path.with_name(f".{path.name}.{uuid4().hex[:8]}.partial")
    try:
        with naming_full_disk(path):
            draft.write_text(json.dumps(asdict(own)) + "\n", encoding="utf-8")
            path.hardlink_to(draft)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    return True


def _remove(path: Path, holder: Holder) -> None:
    """Removes the lock of `holder`; one that another process put there meanwhile is put back."""
    aside = path.with_name(f".{path.name}.{uuid4().hex[:8]}.partial")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return
    if Holder(**json.loads(aside.read_text(encoding="utf-8"))) != holder:
        path.hardlink_to(aside)
    aside.unlink()


def _start_time(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat; None for a process that has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])
