"""A retriever server that lives as long as a training job: one index in memory for all agent-loop workers."""

from __future__ import annotations

import socket
from contextlib import AbstractContextManager
from pathlib import Path

from parallelsearch.errors import RetrieverError
from parallelsearch.training.server_process import server_process


def served_index(
    index: Path, folder: Path, nodes: int = 1, wait_seconds: float = 3600.0
) -> AbstractContextManager[str]:
    """Yields the URL of a server for `index`; its log is `folder`/retriever.log, its port a free one.

    A job on one node listens on 127.0.0.1, one on several on the node's own name. RetrieverError when the server ends
    or is not ready in time.
    """
    host = "127.0.0.1" if nodes == 1 else socket.gethostname()
    arguments = ["retriever", "serve", "--index", str(index), "--host", host, "--port", "0"]
    ready, log = folder / "retriever.json", folder / "retriever.log"
    called = f"The retriever server for {index}"
    return server_process(arguments, ready, log, called, RetrieverError, wait_seconds)
