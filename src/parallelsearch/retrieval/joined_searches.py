"""Searches of many callers at the same time, joined into few: what every retriever of an index has in common."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from parallelsearch.corpus.passages import Corpus
from parallelsearch.errors import RetrieverError, RetrieverRefused
from parallelsearch.records import Hit
from parallelsearch.retrieval.latest import LatestAnswers

MAX_QUERIES_PER_BATCH = 512


@dataclass(slots=True)
class _Request:
    queries: list[str]
    top_k: int
    reply: asyncio.Future[list[list[Hit]]]


class JoinedSearches(ABC):
    """A retriever that finds by `find`. Thread-safe.

    Calls that arrive while a search is running are answered together by the next one, and the most recent answers are
    kept (`latest`). `corpus` has the passages that are found; `description` says what is searched (the server shows it
    at /ready).
    """

    def __init__(self, corpus: Corpus, description: dict[str, Any]) -> None:
        self.corpus = corpus
        self.description = description
        self.latest: LatestAnswers[tuple[str, int], list[Hit]] = LatestAnswers()
        self._search_lock = threading.Lock()
        # One thread for all searches: each further one would bring its own memory arena and team of compute threads.
        self._searcher = ThreadPoolExecutor(1, "search")
        self._waiting: dict[asyncio.AbstractEventLoop, list[_Request]] = {}
        self._workers: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}

    def keep_latest(self, answers: int) -> None:
        """Keeps so many answers from now on (0: none), here and in whatever this retriever asks itself."""
        self.latest = LatestAnswers(answers)

    @abstractmethod
    def find(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """Hits of each query, best first, equal scores by ascending passage id.

        Called by one thread at a time, with at least one query, none of them empty, and `top_k` >= 1.
        """

    def search_now(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """The synchronous search: hits of each query, best first, equal scores by ascending passage id.

        `top_k` above the number of passages returns all that this kind of index finds for the query. An empty query or
        `top_k` < 1 is RetrieverRefused.
        """
        _check(queries, top_k)
        if not queries:
            return []
        answers = self.latest.known((query, top_k) for query in queries)
        new = [query for query in dict.fromkeys(queries) if (query, top_k) not in answers]
        if new:
            with self._search_lock:
                found = self.find(new, top_k)
            answers.update({(query, top_k): hits for query, hits in zip(new, found, strict=True)})
            self.latest.keep({(query, top_k): answers[query, top_k] for query in new})
        return [list(answers[query, top_k]) for query in queries]

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
                if batch:
                    await self._answer(loop, batch)
        finally:
            del self._workers[loop]
            if not self._waiting[loop]:
                del self._waiting[loop]

    async def _answer(self, loop: asyncio.AbstractEventLoop, batch: list[_Request]) -> None:
        queries = [query for request in batch for query in request.queries]
        top_k = max(request.top_k for request in batch)
        try:
            hits = await loop.run_in_executor(self._searcher, self.search_now, queries, top_k)
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
        raise RetrieverRefused(f"top_k is {top_k}; ask for at least one passage.")
    for number, query in enumerate(queries):
        if not query.strip():
            raise RetrieverRefused(f"query {number} of {len(queries)} is empty; drop empty sub-queries first.")


def _next_batch(waiting: list[_Request]) -> list[_Request]:
    """Takes requests off the front while they hold at most MAX_QUERIES_PER_BATCH queries (at least one request).

    Those whose callers gave up meanwhile are dropped.
    """
    size = taken = 0
    for request in waiting:
        if taken and size + len(request.queries) > MAX_QUERIES_PER_BATCH:
            break
        size += len(request.queries)
        taken += 1
    batch = [request for request in waiting[:taken] if not request.reply.done()]
    del waiting[:taken]
    return batch
