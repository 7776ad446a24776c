"""Processes of a job whose command was killed, and which have not ended yet: they must not write beside the next job.

veRL's main process follows the command (child_process), Ray's follow that one within seconds. A checkpoint that one of
them still writes would be taken for the next job's.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

VARIABLE = "VERL_FILE_LOGGER_PATH"  # names a file in the run's folder, in the environment of every process of a job
GONE_SECONDS = 30.0


def end_leftovers(folder: Path) -> int:
    """Ends (SIGKILL) all processes on this machine of earlier jobs of the run in `folder`; returns their number.

    To be called by the run's only writer. Where there is no /proc nothing is found.
    """
    found = _processes(folder)
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    end = time.monotonic() + GONE_SECONDS
    while _processes(folder) and time.monotonic() < end:
        time.sleep(0.1)
    if found:
        print(f"{folder}: ended {len(found)} processes that a killed job had left", flush=True)
    return len(found)


def _processes(folder: Path) -> list[int]:
    mark = f"{VARIABLE}={folder.resolve()}/".encode()
    return [int(entry.parent.name) for entry in Path("/proc").glob("[0-9]*/environ") if _holds(entry, mark)]


def _holds(environment: Path, mark: bytes) -> bool:
    try:
        return any(variable.startswith(mark) for variable in environment.read_bytes().split(b"\0"))
    except OSError:  # it has ended, or is somebody else's
        return False
