"""What an agent searches with: one batched call for all its sub-queries."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from parallelsearch.errors import RetrieverError
from parallelsearch.records import Hit
from parallelsearch.retrieval.encoding.encoder import Encoder
from parallelsearch.retrieval.indexes.stored_index import StoredIndex

MAX_QUERIES_PER_BATCH = 512


@runtime_checkable
class Retriever(Protocol):
    """Anything that finds passages: local, or behind a URL."""

    async def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """For each query at most `top_k` hits, best first. Raises RetrieverError."""
        ...


@dataclass(slots=True)
class _Request:
    queries: list[str]
    top_k: int
    reply: asyncio.Future[list[list[Hit]]]


class LocalRetriever:
    """Encoder, index and corpus in this process. Thread-safe.

    Calls that arrive while a search is running are answered together by the next one (one encoding, one index search).
    """

    def __init__(self, encoder: Encoder, index: StoredIndex) -> None:
        self.encoder = encoder
        self.index = index
        self.corpus = index.corpus
        self._search_lock = threading.Lock()
        self._waiting: dict[asyncio.AbstractEventLoop, list[_Request]] = {}
        self._workers: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}

    @classmethod
    def open(cls, index_dir: Path, device: str | None = None) -> LocalRetriever:
        """Opens the index folder and the corpus and encoder its manifest names; refuses parts that do not match."""
        index = StoredIndex(index_dir)
        return cls(Encoder.open(index.encoder_dir, device), index)

    def search_now(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """The synchronous search: hits of each query, best first, equal scores by ascending passage id.

        `top_k` above the number of passages returns them all. An empty query or `top_k` < 1 is a RetrieverError.
        """
        _check(queries, top_k)
        if not queries:
            return []
        with self._search_lock:
            scores, ids = self.index.search(self.encoder.encode_queries(queries), top_k)
        return [
            [Hit(self.corpus[int(i)], float(s)) for s, i in zip(row_scores, row_ids, strict=True) if i >= 0]
            for row_scores, row_ids in zip(scores, ids, strict=True)
        ]

    async def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """As `search_now`, without blocking the event loop, joined with other calls that wait at the same time."""
        _check(queries, top_k)
        if not queries:
            return []
        loop = asyncio.get_running_loop()
        request = _Request(list(queries), top_k, loop.create_future())
        self._waiting.setdefault(loop, []).append(request)
        if loop not in self._workers:
            self._workers[loop] = loop.create_task(self._answer_waiting(loop))
        return await request.reply

    async def _answer_waiting(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            await asyncio.sleep(0)  # lets every coroutine that is ready now put its queries in
            while self._waiting[loop]:
                batch = _next_batch(self._waiting[loop])
                await self._answer(loop, batch)
        finally:
            del self._workers[loop]
            if not self._waiting[loop]:
                del self._waiting[loop]

    async def _answer(self, loop: asyncio.AbstractEventLoop, batch: list[_Request]) -> None:
        queries = [query for request in batch for query in request.queries]
        top_k = max(request.top_k for request in batch)
        try:
            hits = await loop.run_in_executor(None, self.search_now, queries, top_k)
        except Exception as error:  # every caller of the batch learns of it; none may wait for ever
            for request in batch:
                if not request.reply.done():
                    request.reply.set_exception(RetrieverError(f"search failed ({type(error).__name__}: {error})."))
            return
        start = 0
        for request in batch:
            stop = start + len(request.queries)
            if not request.reply.done():
                request.reply.set_result([found[: request.top_k] for found in hits[start:stop]])
            start = stop


def _check(queries: Sequence[str], top_k: int) -> None:
    if top_k < 1:
        raise RetrieverError(f"top_k is {top_k}; ask for at least one passage.")
    for number, query in enumerate(queries):
        if not query.strip():
            raise RetrieverError(f"query {number} of {len(queries)} is empty; drop empty sub-queries first.")


def _next_batch(waiting: list[_Request]) -> list[_Request]:
    """Takes requests off the front while they hold at most MAX_QUERIES_PER_BATCH queries (at least one request)."""
    size = taken = 0
    for request in waiting:
        if taken and size + len(request.queries) > MAX_QUERIES_PER_BATCH:
            break
        size += len(request.queries)
        taken += 1
    batch = waiting[:taken]
    del waiting[:taken]
    return batch
