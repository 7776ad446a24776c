"""The server process: it listens at once, loads the index meanwhile, and stops cleanly; with one worker or several."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import uvicorn

from parallelsearch.files import MANIFEST, read_json, write_json
from parallelsearch.retrieval.joined_searches import JoinedSearches
from parallelsearch.retrieval.latest import CACHED_QUERIES
from parallelsearch.retrieval.opening import open_retriever
from parallelsearch.retrieval.serving.application import MAX_WAITING_QUERIES, RetrieverService
from parallelsearch.retrieval.serving.wire import DEFAULT_TOP_K, TOKEN_VARIABLE
from parallelsearch.retrieval.serving.workers import run_workers
from parallelsearch.serving.access import is_local, required_token
from parallelsearch.serving.server import GRACE_SECONDS, KEEP_ALIVE_SECONDS, OrderlyServer, open_socket

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class ServerSettings:
    """What one worker needs to know. `cached_queries` answers are kept (0: none)."""

    index_dir: Path
    top_k: int = DEFAULT_TOP_K
    device: str | None = None
    max_waiting: int = MAX_WAITING_QUERIES
    cached_queries: int = CACHED_QUERIES
    token: str | None = field(default=None, repr=False)

    def open(self) -> JoinedSearches:
        """The retriever of the index."""
        retriever = open_retriever(self.index_dir, self.device)
        retriever.keep_latest(self.cached_queries)
        return retriever


def serve(
    settings: ServerSettings,
    host: str = LOOPBACK,
    port: int = 0,
    workers: int = 1,
    ready_file: Path | None = None,
    announce: Callable[[str], None] = print,
    everybody: bool = False,
) -> None:
    """Serves the index until SIGTERM or SIGINT; requests in progress are finished first (at most 10 seconds).

    Port 0 takes a free one. When all `workers` answer searches, `ready_file` gets {"host", "port", "url",
    "index_sha256"}; it is removed at the end. The token, if any, comes from the environment
    (PARALLELSEARCH_RETRIEVER_TOKEN); a `host` that other machines reach needs one, unless `everybody` may ask. Raises
    ConfigError without it, RetrieverError for a port in use and a worker that ends, and what `open_retriever` raises.
    """
    settings = replace(settings, token=required_token(host, TOKEN_VARIABLE, everybody))
    listening = open_socket(host, port)
    port = listening.getsockname()[1]
    url = f"http://{host}:{port}"
    if not is_local(host) and not settings.token:
        announce(f"anyone who reaches {url} may search")

    def on_ready() -> None:
        if ready_file:
            index = read_json(settings.index_dir / MANIFEST)["sha256"]
            write_json(ready_file, {"host": host, "port": port, "url": url, "index_sha256": index})
        announce(f"ready at {url}")

    if ready_file:
        ready_file.unlink(missing_ok=True)
    announce(f"listening at {url}, loading {settings.index_dir}")
    try:
        if workers == 1:
            run_worker(settings, listening, on_ready)
        else:
            run_workers(workers, run_worker, settings, listening, on_ready)
    finally:
        listening.close()
        if ready_file:
            ready_file.unlink(missing_ok=True)


def run_worker(settings: ServerSettings, listening: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serves on an open socket, in this process, until it is told to stop; raises what loading the index raised."""
    service = RetrieverService(settings.top_k, settings.max_waiting, token=settings.token)
    server = _Server(service, settings.open, on_ready)
    server.run(sockets=[listening])
    if server.failure:
        raise server.failure


class _Server(OrderlyServer):
    """Loads the index after the socket is open."""

    def __init__(self, service: RetrieverService, load: Callable[[], JoinedSearches], on_ready: Callable[[], None]):
        super().__init__(
            uvicorn.Config(
                service.app,
                log_level="warning",
                access_log=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )
        self.service, self.load, self.on_ready = service, load, on_ready
        self.failure: BaseException | None = None
        self._loading: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loading = asyncio.create_task(self._load())

    async def _load(self) -> None:
        try:
            retriever = await asyncio.to_thread(self.load)
            self.service.description = retriever.description
            self.service.retriever = retriever
            self.on_ready()
        except Exception as error:
            self.failure = error
            self.should_exit = True
