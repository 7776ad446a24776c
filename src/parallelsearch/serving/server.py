"""A web server that listens before it answers and ends cleanly."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from parallelsearch.errors import RetrieverError

GRACE_SECONDS = 10
KEEP_ALIVE_SECONDS = 65  # longer than clients keep a connection: a request must not meet a closing one


class OrderlyServer(uvicorn.Server):
    """uvicorn, with an ordinary return (exit code 0) on SIGTERM and SIGINT."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket, port 0 being a free one; RetrieverError where it cannot be had."""
    try:
        listening = socket.create_server((host, port), backlog=1024)
    except OSError as error:
        reason = error.strerror or error
        raise RetrieverError(
            f"cannot listen on {host}:{port} ({reason}); choose another --port, or 0 for a free one."
        ) from None
    # Accepted connections inherit it. asyncio sets it only on sockets that name their protocol, which these do not, and
    # without it the end of every reply waits 40 ms for the client's acknowledgement of its beginning.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
