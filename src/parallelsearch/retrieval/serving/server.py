"""A retriever behind HTTP. It listens at once, answers /ready with 503 until the index is loaded, and stops cleanly.

POST /retrieve (Search-R1's request and reply), GET /health (the process lives), GET /ready (searches are answered),
GET /metrics (Prometheus).
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, Response
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from parallelsearch.errors import RetrieverError
from parallelsearch.files import write_json
from parallelsearch.retrieval.joined_searches import JoinedSearches
from parallelsearch.retrieval.opening import open_retriever
from parallelsearch.retrieval.retriever import Retriever
from parallelsearch.retrieval.serving.wire import DEFAULT_TOP_K, RetrieveRequest, reply_body

GRACE_SECONDS = 10
LOOPBACK = "127.0.0.1"


class RetrieverService:
    """The application and the retriever it answers with, which may come later than the first request."""

    def __init__(self, top_k: int = DEFAULT_TOP_K) -> None:
        self.retriever: Retriever | None = None
        self.description: dict[str, Any] = {}
        self.top_k = top_k
        self.registry = CollectorRegistry()
        self._queries = Counter("parallelsearch_queries", "Queries searched.", registry=self.registry)
        self._failures = Counter("parallelsearch_failed_requests", "Requests refused.", registry=self.registry)
        self._seconds = Histogram("parallelsearch_request_seconds", "Seconds of a request.", registry=self.registry)
        self.app = FastAPI(title="parallelsearch retriever")
        self.app.add_api_route("/retrieve", self.retrieve, methods=["POST"])
        self.app.add_api_route("/health", self.health, methods=["GET"])
        self.app.add_api_route("/ready", self.ready, methods=["GET"])
        self.app.add_api_route("/metrics", self.metrics, methods=["GET"])

    async def retrieve(self, request: RetrieveRequest) -> dict[str, Any]:
        """The passages of every query of the request; 400 for an empty query, 503 before the index is loaded."""
        retriever = self._loaded()
        with self._seconds.time():
            try:
                results = await retriever.search(request.queries, request.topk or self.top_k)
            except RetrieverError as error:
                self._failures.inc()
                raise HTTPException(400, str(error)) from None
        self._queries.inc(len(request.queries))
        return reply_body(results, request.return_scores)

    async def health(self) -> dict[str, str]:
        """200 as long as the process answers."""
        return {"status": "alive"}

    async def ready(self) -> dict[str, Any]:
        """200 with the index's description when searches are answered, 503 before."""
        self._loaded()
        return {"status": "ready", **self.description}

    async def metrics(self) -> Response:
        """Counters and times in Prometheus' text format."""
        return Response(generate_latest(self.registry), media_type="text/plain; version=0.0.4")

    def _loaded(self) -> Retriever:
        if self.retriever is None:
            raise HTTPException(503, "the index is still being loaded; ask /ready again in a moment")
        return self.retriever


class _Server(uvicorn.Server):
    """uvicorn, with loading after the socket is open and an ordinary return (exit code 0) on SIGTERM and SIGINT."""

    def __init__(self, service: RetrieverService, load: Callable[[], JoinedSearches], on_ready: Callable[[], None]):
        super().__init__(
            uvicorn.Config(service.app, log_level="warning", timeout_graceful_shutdown=GRACE_SECONDS, access_log=False)
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


def serve(
    index_dir: Path,
    host: str = LOOPBACK,
    port: int = 0,
    ready_file: Path | None = None,
    top_k: int = DEFAULT_TOP_K,
    device: str | None = None,
    announce: Callable[[str], None] = print,
) -> None:
    """Serves the index until SIGTERM or SIGINT; requests in progress are finished first (at most 10 seconds).

    Port 0 takes a free one. When searches are answered, `ready_file` gets {"host", "port", "url"}; it is removed at the
    end. Raises RetrieverError for a port in use, and what open_retriever raises.
    """
    listening = _bind(host, port)
    port = listening.getsockname()[1]
    url = f"http://{host}:{port}"

    def on_ready() -> None:
        if ready_file:
            write_json(ready_file, {"host": host, "port": port, "url": url})
        announce(f"ready at {url}")

    if ready_file:
        ready_file.unlink(missing_ok=True)
    server = _Server(RetrieverService(top_k), lambda: open_retriever(index_dir, device), on_ready)
    announce(f"listening at {url}, loading {index_dir}")
    try:
        server.run(sockets=[listening])
    finally:
        listening.close()
        if ready_file:
            ready_file.unlink(missing_ok=True)
    if server.failure:
        raise server.failure


def _bind(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port))
    except OSError as error:
        reason = error.strerror or error
        raise RetrieverError(
            f"cannot listen on {host}:{port} ({reason}); choose another --port, or 0 for a free one."
        ) from None
