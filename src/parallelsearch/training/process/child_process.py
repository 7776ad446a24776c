"""A child process that never outlives the command that started it, even where that is killed with SIGKILL.

A shielded child does not hear SIGTERM and SIGUSR1, nor does anything that it starts: Slurm sends them to every process
of a job at once, and a training job can only save a checkpoint while its processes live. It is ended by SIGINT.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1  # prctl(2), Linux
SHIELDED_FROM = (signal.SIGTERM, signal.SIGUSR1)
STOP_SECONDS = 20.0  # between asking a process to end and ending it


def start_child(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None, shielded: bool = False
) -> subprocess.Popen[bytes]:
    """Starts `command` in a session of its own, its output appended to `log`.

    On Linux the kernel sends it SIGTERM (SIGINT, where it is shielded) when this process ends, however that happens.
    """
    parent = os.getpid()

    def follow_parent() -> None:
        if shielded:
            signal.pthread_sigmask(signal.SIG_BLOCK, SHIELDED_FROM)  # a mask outlives exec, also in grandchildren
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell ignores it in what it runs in the background
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT if shielded else signal.SIGTERM)
            if os.getppid() != parent:  # it ended before the line above
                os._exit(1)

    with log.open("ab") as stream:
        return subprocess.Popen(
            command,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=dict(environment) if environment is not None else None,
            start_new_session=True,
            preexec_fn=follow_parent,
        )


def end_child(process: subprocess.Popen[bytes], shielded: bool = False) -> None:
    """Ends a child and what it started in its session: SIGTERM, and after STOP_SECONDS SIGKILL.

    A shielded child is asked by SIGINT, and it alone.
    """
    for number in (signal.SIGINT if shielded else signal.SIGTERM, signal.SIGKILL):
        try:
            if number == signal.SIGINT:
                process.send_signal(number)
            else:
                os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    process.poll()


@contextmanager
def running_child(
    command: Sequence[str], log: Path, environment: Mapping[str, str], shielded: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """A child that ends with the block, whatever ends the block; SIGTERM and SIGHUP to this process end it too."""
    process = start_child(command, log, environment, shielded)
    previous = {number: signal.signal(number, _raise_exit) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield process
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        end_child(process, shielded)


def log_tail(path: Path, lines: int = 15) -> str:
    """The last lines of a child's log."""
    return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def _raise_exit(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)
