"""The bounded queue of the application, with searches that last as long as a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import httpx

from parallelsearch.records import Hit, Passage
from parallelsearch.retrieval.serving.application import RetrieverService


class HeldRetriever:
    """Answers when it is released."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        await self.released.wait()
        return [[Hit(Passage(0, "t", query), 1.0)] for query in queries]


async def post(client: httpx.AsyncClient, queries: int) -> httpx.Response:
    return await client.post("/retrieve", json={"queries": [f"q{n}" for n in range(queries)]})


def client_of(service: RetrieverService) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(service.app), base_url="http://retriever")


def test_what_does_not_fit_in_the_queue_is_sent_away_at_once_and_room_is_made_by_answers() -> None:
    async def run() -> None:
        service = RetrieverService(max_waiting=10)
        service.retriever = held = HeldRetriever()
        async with client_of(service) as client:
            waiting = asyncio.create_task(post(client, 8))
            await asyncio.sleep(0.05)
            refused = await post(client, 3)
            assert refused.status_code == 503 and refused.headers["retry-after"] == "1"
            detail = "8 queries are in hand and 10 may be, 3 more were sent; ask again in 1 s."
            assert refused.json() == {"detail": detail}
            fitting = asyncio.create_task(post(client, 2))
            await asyncio.sleep(0.05)
            assert "parallelsearch_queries_in_hand 10.0" in (await client.get("/metrics")).text
            held.released.set()
            assert (await waiting).status_code == (await fitting).status_code == 200
            assert (await post(client, 10)).status_code == 200
            metrics = (await client.get("/metrics")).text
            assert 'parallelsearch_refused_requests_total{status="503"} 1.0' in metrics
            assert "parallelsearch_queries_in_hand 0.0" in metrics and "parallelsearch_queries_total 20.0" in metrics

    asyncio.run(run())


def test_a_large_request_is_searched_in_parts_and_without_its_empty_queries() -> None:
    class Counting:
        def __init__(self) -> None:
            self.parts: list[int] = []

        async def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
            self.parts.append(len(queries))
            return [[Hit(Passage(0, "t", query), 1.0)] for query in queries]

    async def run() -> None:
        service = RetrieverService()
        service.retriever = counting = Counting()
        async with client_of(service) as client:
            result = (await post(client, 2560)).json()["result"]
            assert counting.parts == [512] * 5
            assert [hits[0]["contents"] for hits in result] == [f'"t"\nq{n}' for n in range(2560)]
            mixed = await client.post("/retrieve", json={"queries": [" ", "a", "\u2003\t", "", "b"]})
            assert [[hit["contents"] for hit in hits] for hits in mixed.json()["result"]] == [
                [],
                ['"t"\na'],
                [],
                [],
                ['"t"\nb'],
            ]
            empty = await client.post("/retrieve", json={"queries": ["", ""]})
            assert empty.json() == {"result": [[], []]} and counting.parts[5:] == [2]
            service.max_waiting = 10
            assert (await post(client, 25)).status_code == 200
            assert counting.parts[6:] == [10, 10, 5]

    asyncio.run(run())


def test_a_search_that_takes_too_long_is_given_up_and_leaves_the_queue() -> None:
    async def run() -> None:
        service = RetrieverService(max_waiting=4, request_seconds=0.1)
        service.retriever = HeldRetriever()
        async with client_of(service) as client:
            late = await post(client, 4)
            assert late.status_code == 503 and late.headers["retry-after"] == "1"
            assert late.json()["detail"] == "no answer within 0.1 s; send fewer queries at once; ask again in 1 s."
            assert (await post(client, 4)).json() == late.json()  # not "in hand": the first four are gone

    asyncio.run(run())


def test_a_failed_search_is_a_500_with_its_reason() -> None:
    class Broken:
        async def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
            from parallelsearch.errors import RetrieverError

            raise RetrieverError("search failed (MemoryError: 3 GiB).")

    async def run() -> None:
        service = RetrieverService()
        service.retriever = Broken()
        async with client_of(service) as client:
            reply = await post(client, 1)
            assert (reply.status_code, reply.json()) == (500, {"detail": "search failed (MemoryError: 3 GiB)."})

    asyncio.run(run())
