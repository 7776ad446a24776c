"""The retriever as a web application: what it admits, what it answers, what it counts.

POST /retrieve (Search-R1's request and reply), GET /health (the process lives), GET /ready (searches are answered),
GET /metrics (Prometheus). Every refusal is {"detail": one sentence}.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from pydantic import ValidationError

from parallelsearch.errors import RetrieverError, RetrieverRefused
from parallelsearch.records import Hit
from parallelsearch.retrieval.joined_searches import MAX_QUERIES_PER_BATCH
from parallelsearch.retrieval.retriever import Retriever
from parallelsearch.retrieval.serving.wire import (
    DEFAULT_TOP_K,
    MAX_PASSAGES,
    TOKEN_VARIABLE,
    RetrieveRequest,
    reply_body,
)
from parallelsearch.serving.access import is_authorised
from parallelsearch.serving.body_limit import BodyLimit

METRICS_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # where the workers of one server share their counts
MAX_WAITING_QUERIES = 2048
MAX_BODY_BYTES = 2**23
REQUEST_SECONDS = 30.0
RETRY_AFTER_SECONDS = 1


class RetrieverService:
    """The application and the retriever it answers with, which may come later than the first request.

    At most `max_waiting` queries are in hand at once, and none longer than `request_seconds`: beyond that a request
    gets 503 with Retry-After. With `token`, every path but /health asks for `Authorization: Bearer TOKEN`.
    """

    def __init__(
        self,
        top_k: int = DEFAULT_TOP_K,
        max_waiting: int = MAX_WAITING_QUERIES,
        request_seconds: float = REQUEST_SECONDS,
        token: str | None = None,
    ) -> None:
        self.retriever: Retriever | None = None
        self.description: dict[str, Any] = {}
        self.top_k = top_k
        self.max_waiting = max_waiting
        self.request_seconds = request_seconds
        self.token = token
        self.registry = CollectorRegistry()
        self._in_hand = 0
        self._queries = Counter("parallelsearch_queries", "Queries answered.", registry=self.registry)
        self._refusals = Counter("parallelsearch_refused_requests", "Refusals.", ["status"], registry=self.registry)
        self._seconds = Histogram("parallelsearch_request_seconds", "Seconds of a request.", registry=self.registry)
        self._waiting = Gauge(
            "parallelsearch_queries_in_hand", "Queries in hand.", registry=self.registry, multiprocess_mode="livesum"
        )
        # Its own pages of documentation would load scripts from the net; with a token, not even the schema is public.
        schema = None if token else "/openapi.json"
        self.app = FastAPI(title="parallelsearch retriever", docs_url=None, redoc_url=None, openapi_url=schema)
        self.app.add_middleware(BodyLimit, max_bytes=MAX_BODY_BYTES)
        self.app.add_exception_handler(HTTPException, self._refused)
        guarded = [Depends(self._authorised)]
        body = {"required": True, "content": {"application/json": {"schema": RetrieveRequest.model_json_schema()}}}
        self.app.add_api_route(
            "/retrieve", self.retrieve, methods=["POST"], dependencies=guarded, openapi_extra={"requestBody": body}
        )
        self.app.add_api_route("/health", self.health, methods=["GET"])
        self.app.add_api_route("/ready", self.ready, methods=["GET"], dependencies=guarded)
        self.app.add_api_route("/metrics", self.metrics, methods=["GET"], dependencies=guarded)

    async def retrieve(self, http_request: Request) -> JSONResponse:
        """The passages of every query of the request; none for an empty one, as a model writes them now and then.

        A large request is searched in parts, one after the other. 413 for a body above 8 MiB, 422 for one of another
        shape, 503 with Retry-After while the index is being loaded, when too many queries are in hand and when the
        answer to a part takes too long.
        """
        retriever = self._loaded()
        request = _read(await http_request.body())
        top_k = request.topk or self.top_k
        _check_size(len(request.queries), top_k)
        asked = [query for query in request.queries if query.strip()]
        size = min(MAX_QUERIES_PER_BATCH, self.max_waiting)
        found: list[list[Hit]] = []
        with self._in_hand_for(min(len(asked), size)), self._seconds.time():
            try:
                for start in range(0, len(asked), size):
                    async with asyncio.timeout(self.request_seconds):
                        found += await retriever.search(asked[start : start + size], top_k)
            except TimeoutError:
                raise _later(f"no answer within {self.request_seconds:g} s; send fewer queries at once") from None
            except RetrieverRefused as error:
                raise HTTPException(400, str(error)) from None
            except RetrieverError as error:
                raise HTTPException(500, str(error)) from None
        self._queries.inc(len(request.queries))
        hits = iter(found)
        results = [next(hits) if query.strip() else [] for query in request.queries]
        # Not through FastAPI's own encoding, which walks every document first: it is plain JSON already.
        return JSONResponse(reply_body(results, request.return_scores))

    async def health(self) -> dict[str, str]:
        """200 as long as the process answers."""
        return {"status": "alive"}

    async def ready(self) -> dict[str, Any]:
        """200 with the index's description when searches are answered, 503 before."""
        self._loaded()
        return {"status": "ready", **self.description}

    async def metrics(self) -> PlainTextResponse:
        """Counters and times of all workers in Prometheus' text format."""
        registry = self.registry
        if METRICS_FOLDER_VARIABLE in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
        return PlainTextResponse(generate_latest(registry), media_type="text/plain; version=0.0.4")

    def _loaded(self) -> Retriever:
        if self.retriever is None:
            raise _later("the index is still being loaded")
        return self.retriever

    @contextmanager
    def _in_hand_for(self, queries: int) -> Iterator[None]:
        if self._in_hand + queries > self.max_waiting:
            raise _later(f"{self._in_hand} queries are in hand and {self.max_waiting} may be, {queries} more were sent")
        self._count(queries)
        try:
            yield
        finally:
            self._count(-queries)

    def _count(self, queries: int) -> None:
        self._in_hand += queries
        self._waiting.set(self._in_hand)

    async def _authorised(self, request: Request) -> None:  # FastAPI hands a plain function to a thread
        if not is_authorised(request, self.token):
            raise HTTPException(401, f"this server wants its token; set {TOKEN_VARIABLE} to it.")

    async def _refused(self, request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        self._refusals.labels(error.status_code).inc()
        return JSONResponse({"detail": error.detail}, error.status_code, error.headers)


def _read(body: bytes) -> RetrieveRequest:
    try:
        return RetrieveRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the body"
        wanted = 'send {"queries": [...], "topk": 3, "return_scores": true}'
        raise HTTPException(422, f"{place}: {first['msg']}; {wanted}.") from None


def _check_size(queries: int, top_k: int) -> None:
    if queries * top_k > MAX_PASSAGES:
        raise HTTPException(
            422, f"{queries} queries with topk {top_k} want more than {MAX_PASSAGES} passages; send fewer at once."
        )


def _later(reason: str) -> HTTPException:
    sentence = f"{reason}; ask again in {RETRY_AFTER_SECONDS} s."
    return HTTPException(503, sentence, {"Retry-After": str(RETRY_AFTER_SECONDS)})
