"""A language model behind a URL that lives as long as a training job: it simulates searches for all workers."""

from __future__ import annotations

import socket
from contextlib import AbstractContextManager
from pathlib import Path

from parallelsearch.errors import EngineError
from parallelsearch.training.process.server_process import server_process


def served_policy(
    policy: Path, folder: Path, nodes: int = 1, device: str = "cpu", wait_seconds: float = 3600.0
) -> AbstractContextManager[str]:
    """Yields the URL, ending in /v1, of an OpenAI-compatible server for the model in `policy`.

    Its log is `folder`/simulator.log, its port a free one. A job on one node listens on 127.0.0.1, one on several on
    the node's own name. EngineError when the server ends or is not ready in time.
    """
    host = "127.0.0.1" if nodes == 1 else socket.gethostname()
    arguments = ["policy", "serve", str(policy), "--host", host, "--device", device]
    ready, log = folder / "simulator.json", folder / "simulator.log"
    return server_process(arguments, ready, log, f"The server for {policy}", EngineError, wait_seconds)
