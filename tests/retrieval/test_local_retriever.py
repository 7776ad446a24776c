"""The retriever in this process: batching, ties, limits, errors."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from small_study import DUPLICATED, Study

from parallelsearch.config import IndexConfig
from parallelsearch.errors import RetrieverError
from parallelsearch.records import Hit
from parallelsearch.retrieval.indexes.stored_index import write_index
from parallelsearch.retrieval.joined_searches import _next_batch, _Request
from parallelsearch.retrieval.retriever import LocalRetriever, Retriever


def ids(hits: list[Hit]) -> list[int]:
    return [hit.passage.id for hit in hits]


def test_it_is_a_retriever_and_returns_the_corpus_own_passages(
    retriever: LocalRetriever, small_rows: list[dict[str, str]]
) -> None:
    assert isinstance(retriever, Retriever)
    (hits,) = retriever.search_now([small_rows[7]["title"]], 3)
    assert len(hits) == 3 and hits[0].passage.title == small_rows[7]["title"]
    assert hits[0].passage.text == small_rows[7]["text"].strip()
    assert [h.score for h in hits] == sorted((h.score for h in hits), reverse=True)


def test_scores_are_inner_products_of_unit_vectors(retriever: LocalRetriever) -> None:
    query = "a drummer and songwriter"
    (hits,) = retriever.search_now([query], 43)
    vectors = retriever.encoder.encode_passages([hit.passage for hit in hits])
    expected = vectors @ retriever.encoder.encode_queries([query])[0]
    assert np.allclose([hit.score for hit in hits], expected, atol=5e-3)


def test_duplicates_tie_and_come_in_the_order_of_their_ids(retriever: LocalRetriever) -> None:
    passage = retriever.corpus[DUPLICATED]
    queries = [f"{passage.title} {n}" for n in range(30)]
    for size in (1, 2, 7, 30):
        for hits in retriever.search_now(queries[:size], 43):
            place = ids(hits).index(DUPLICATED)
            assert ids(hits)[place + 1] == 42
            assert hits[place].score == hits[place + 1].score
    (first,) = retriever.search_now([passage.title], 1)
    assert ids(first) == [DUPLICATED]


@pytest.mark.parametrize("kind", ["flat", "flat_fp16", "ivf_flat", "hnsw"])
def test_more_hits_than_passages_give_them_all(study: Study, tmp_path: object, kind: str) -> None:
    parameters = {"nlist": 4, "nprobe": 4} if kind == "ivf_flat" else {}
    folder = study.root / f"index.{kind}"
    write_index(study.corpus, study.embeddings, folder, IndexConfig(kind=kind, parameters=parameters))
    (hits,) = LocalRetriever.open(folder, device="cpu").search_now(["anything"], 1000)
    assert sorted(ids(hits)) == list(range(43))


def test_places_an_approximate_index_cannot_fill_are_left_out(study: Study) -> None:
    folder = study.root / "index.narrow"
    config = IndexConfig(kind="ivf_flat", parameters={"nlist": 20, "nprobe": 1})
    write_index(study.corpus, study.embeddings, folder, config)
    (hits,) = LocalRetriever.open(folder, device="cpu").search_now(["a drummer"], 43)
    assert 0 < len(hits) < 43 and len(set(ids(hits))) == len(hits)


def test_empty_queries_and_impossible_numbers_are_refused(retriever: LocalRetriever) -> None:
    assert retriever.search_now([], 3) == []
    assert asyncio.run(retriever.search([], 3)) == []
    with pytest.raises(RetrieverError, match="query 1 of 2 is empty"):
        retriever.search_now(["a", " \t"], 3)
    with pytest.raises(RetrieverError, match="top_k is 0"):
        asyncio.run(retriever.search(["a"], 0))


def test_waiting_calls_share_one_search_and_each_gets_its_own_hits(
    retriever: LocalRetriever, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    original = retriever.search_now
    monkeypatch.setattr(
        retriever, "search_now", lambda queries, k: (batches.append(len(queries)), original(queries, k))[1]
    )
    titles = [retriever.corpus[n].title for n in range(40)]
    calls = [(titles[n : n + 1 + n % 3], 1 + n % 4) for n in range(30)]

    async def all_calls() -> list[list[list[Hit]]]:
        return await asyncio.gather(*(retriever.search(queries, k) for queries, k in calls))

    found = asyncio.run(all_calls())
    assert batches == [sum(len(queries) for queries, _ in calls)]
    for (queries, k), hits in zip(calls, found, strict=True):
        assert [ids(h) for h in hits] == [ids(h) for h in original(queries, k)]
        assert all(len(h) == k for h in hits)
    assert retriever._workers == {} and retriever._waiting == {}


def test_a_faulty_call_does_not_fail_its_neighbours(retriever: LocalRetriever) -> None:
    async def both() -> list[object]:
        return await asyncio.gather(
            retriever.search(["a drummer"], 2), retriever.search([""], 2), return_exceptions=True
        )

    good, bad = asyncio.run(both())
    assert len(good[0]) == 2 and isinstance(bad, RetrieverError)


def test_a_failed_search_reaches_every_caller_and_the_next_one_works(
    retriever: LocalRetriever, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def calls() -> list[object]:
        return await asyncio.gather(*(retriever.search([f"q{n}"], 1) for n in range(3)), return_exceptions=True)

    def fails(vectors: np.ndarray, top_k: int) -> None:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(retriever.index, "search", fails)
        results = asyncio.run(asyncio.wait_for(calls(), 30))
    assert [type(r) for r in results] == [RetrieverError] * 3
    assert "MemoryError: no room" in str(results[0])
    assert len(asyncio.run(retriever.search(["q0"], 1))[0]) == 1


def test_a_cancelled_caller_leaves_the_others_alone(retriever: LocalRetriever) -> None:
    async def run() -> list[list[Hit]]:
        abandoned = asyncio.create_task(retriever.search(["abandoned question"], 2))
        kept = asyncio.create_task(retriever.search(["kept question"], 2))
        await asyncio.sleep(0)
        abandoned.cancel()
        return await asyncio.wait_for(kept, 30)

    assert len(asyncio.run(run())[0]) == 2


def test_threads_with_their_own_event_loops_may_share_it(retriever: LocalRetriever) -> None:
    titles = [retriever.corpus[n].title for n in range(24)]
    expected = [ids(h) for h in retriever.search_now(titles, 2)]
    start = threading.Barrier(4)

    def worker(offset: int) -> list[list[int]]:
        async def run() -> list[list[int]]:
            results = await asyncio.gather(*(retriever.search([t], 2) for t in titles[offset : offset + 6]))
            return [ids(hits[0]) for hits in results]

        start.wait()
        return asyncio.run(run())

    with ThreadPoolExecutor(4) as pool:
        found = [row for part in pool.map(worker, range(0, 24, 6)) for row in part]
    assert found == expected


def test_batches_are_bounded_and_keep_the_order() -> None:
    loop = asyncio.new_event_loop()
    waiting = [_Request(["q"] * size, 1, loop.create_future()) for size in (300, 200, 20, 600, 1)]
    sizes = []
    while waiting:
        sizes.append([len(r.queries) for r in _next_batch(waiting)])
    loop.close()
    assert sizes == [[300, 200], [20], [600], [1]]
