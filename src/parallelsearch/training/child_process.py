"""A child process that never outlives the command that started it, even where that is killed with SIGKILL."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # prctl(2), Linux
STOP_SECONDS = 20.0  # between asking a process to end and ending it


def start_child(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Starts `command` in a session of its own, its output appended to `log`.

    On Linux the kernel sends it SIGTERM when this process ends, however that happens.
    """
    parent = os.getpid()

    def follow_parent() -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
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


def end_child(process: subprocess.Popen[bytes]) -> None:
    """Ends a child and what it started in its session: SIGTERM, and after STOP_SECONDS SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    process.poll()
