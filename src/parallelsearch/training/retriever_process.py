"""A retriever server that lives as long as a training job: one index in memory for all agent-loop workers."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parallelsearch.errors import RetrieverError
from parallelsearch.files import read_json
from parallelsearch.training.child_process import end_child, start_child

POLL_SECONDS = 0.2


@contextmanager
def served_index(index: Path, folder: Path, nodes: int = 1, wait_seconds: float = 3600.0) -> Iterator[str]:
    """Yields the URL of a server for `index`; its log is `folder`/retriever.log, its port a free one.

    A job on one node listens on 127.0.0.1, one on several on the node's own name. RetrieverError when the server ends
    or is not ready in time.
    """
    ready = folder / "retriever.json"
    ready.unlink(missing_ok=True)
    host = "127.0.0.1" if nodes == 1 else socket.gethostname()
    command = [sys.executable, "-m", "parallelsearch.cli", "retriever", "serve", "--index", str(index)]
    command += ["--host", host, "--port", "0", "--ready-file", str(ready)]
    process = start_child(command, folder / "retriever.log")
    try:
        end = time.monotonic() + wait_seconds
        while not ready.exists():
            if process.poll() is not None:
                raise RetrieverError(
                    f"The retriever server for {index} ended with exit code {process.returncode};"
                    f" see {folder / 'retriever.log'}."
                )
            if time.monotonic() > end:
                raise RetrieverError(f"The retriever server for {index} was not ready after {wait_seconds:.0f} s.")
            time.sleep(POLL_SECONDS)
        yield read_json(ready)["url"]
    finally:
        end_child(process)
