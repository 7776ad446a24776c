"""An application on a real socket, served by a thread of the test's own process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from parallelsearch.serving.server import open_socket


@contextmanager
def served(app: Any) -> Iterator[str]:
    """Yields the address of `app` without a path."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    listening = open_socket("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
