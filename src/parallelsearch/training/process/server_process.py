"""A server that lives as long as a training job: a child process, ready when it has written its file.

Its URL stays the same when it dies and is started again: those who ask it meanwhile find nobody there, and ask again.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from parallelsearch.errors import UserError
from parallelsearch.files import read_json
from parallelsearch.training.process.child_process import end_child, start_child

POLL_SECONDS = 0.2
RESTARTS = 3


@contextmanager
def server_process(
    arguments: Sequence[str], ready: Path, log: Path, called: str, error: type[UserError], wait_seconds: float
) -> Iterator[str]:
    """Yields the URL that `parallelsearch ARGUMENTS --ready-file READY` writes; the server ends with the block.

    Raises `error`, in which the server is `called` so, when it ends before it is ready or is not ready in time. One
    that ends later is started again on its port, at most RESTARTS times.
    """
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "parallelsearch.cli", *arguments, "--ready-file", str(ready), "--port"]
    process = start_child([*command, "0"], log, shielded=True)
    keeper: _Keeper | None = None
    try:
        end = time.monotonic() + wait_seconds
        while not ready.exists():
            if process.poll() is not None:
                raise error(f"{called} ended with exit code {process.returncode}; see {log}.")
            if time.monotonic() > end:
                raise error(f"{called} was not ready after {wait_seconds:.0f} s.")
            time.sleep(POLL_SECONDS)
        url = str(read_json(ready)["url"])
        port = url.removesuffix("/v1").rpartition(":")[2]
        keeper = _Keeper(process, [*command, port], log, called)
        keeper.start()
        yield url
    finally:
        if keeper:
            process = keeper.leave()
        end_child(process, shielded=True)


class _Keeper(threading.Thread):
    """Starts the server again when it has ended. Lives as long as the block, as a child's parent thread has to."""

    def __init__(self, process: subprocess.Popen[bytes], command: Sequence[str], log: Path, called: str) -> None:
        super().__init__(name="server-keeper", daemon=True)
        self._process, self._command, self._log, self._called = process, command, log, called
        self._over = threading.Event()

    def run(self) -> None:
        for restart in range(1, RESTARTS + 1):
            while self._process.poll() is None:
                if self._over.wait(POLL_SECONDS):
                    return
            if self._over.is_set():
                return
            note = f"{self._called} ended with exit code {self._process.returncode}"
            print(f"{note}; restart {restart} of {RESTARTS}, log: {self._log}", flush=True)
            self._process = start_child(self._command, self._log, shielded=True)
        self._over.wait()

    def leave(self) -> subprocess.Popen[bytes]:
        """Ends the watch; returns the process that runs now, to be ended by the caller."""
        self._over.set()
        self.join()
        return self._process
