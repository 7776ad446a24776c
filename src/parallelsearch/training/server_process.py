"""A server that lives as long as a training job: started as a child process, ready when it has written its file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from parallelsearch.errors import UserError
from parallelsearch.files import read_json
from parallelsearch.training.child_process import end_child, start_child

POLL_SECONDS = 0.2


@contextmanager
def server_process(
    arguments: Sequence[str], ready: Path, log: Path, called: str, error: type[UserError], wait_seconds: float
) -> Iterator[str]:
    """Yields the URL that `parallelsearch ARGUMENTS --ready-file READY` writes; the server ends with the block.

    Raises `error`, in which the server is `called` so, when it ends or is not ready in time.
    """
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "parallelsearch.cli", *arguments, "--ready-file", str(ready)]
    process = start_child(command, log, shielded=True)
    try:
        end = time.monotonic() + wait_seconds
        while not ready.exists():
            if process.poll() is not None:
                raise error(f"{called} ended with exit code {process.returncode}; see {log}.")
            if time.monotonic() > end:
                raise error(f"{called} was not ready after {wait_seconds:.0f} s.")
            time.sleep(POLL_SECONDS)
        yield read_json(ready)["url"]
    finally:
        end_child(process, shielded=True)
