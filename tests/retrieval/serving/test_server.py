"""The server over a real socket, asked as Search-R1's clients ask, and by our own client."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from small_study import Study

from parallelsearch.errors import RetrieverError
from parallelsearch.retrieval.retriever import LocalRetriever
from parallelsearch.retrieval.serving.client import HttpRetriever

START_SECONDS = 120
TWO = ["drummers of rock bands", "a long list of items"]


def start(index: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "parallelsearch.cli", "retriever", "serve", "--index", str(index), *options]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def wait_for(file: Path, process: subprocess.Popen[str]) -> dict[str, str]:
    deadline = time.monotonic() + START_SECONDS
    while not file.exists():
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return json.loads(file.read_text())


@pytest.fixture(scope="module")
def url(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    ready = tmp_path_factory.mktemp("server") / "ready.json"
    process = start(study.index, "--port", "0", "--ready-file", str(ready), "--device", "cpu")
    yield wait_for(ready, process)["url"]
    process.terminate()
    assert process.wait(30) == 0
    assert not ready.exists()


def test_it_listens_on_this_machine_only_unless_told_otherwise(url: str) -> None:
    assert url.startswith("http://127.0.0.1:")


def test_two_queries_without_scores_get_two_lists_of_documents(url: str, retriever: LocalRetriever) -> None:
    """With exactly two queries Search-R1's own server mixes up documents and scores when scores are not asked for."""
    reply = httpx.post(f"{url}/retrieve", json={"queries": TWO, "topk": 2, "return_scores": False}).json()
    expected = retriever.search_now(TWO, 2)
    assert [[d["id"] for d in docs] for docs in reply["result"]] == [[str(h.passage.id) for h in hs] for hs in expected]
    document, passage = reply["result"][0][0], expected[0][0].passage
    assert document["contents"].split("\n")[0] == f'"{passage.title}"'
    assert "\n".join(document["contents"].split("\n")[1:]) == passage.text


def test_with_scores_every_hit_has_document_and_score(url: str, retriever: LocalRetriever) -> None:
    reply = httpx.post(f"{url}/retrieve", json={"queries": TWO, "topk": 2, "return_scores": True}).json()
    for hits, expected in zip(reply["result"], retriever.search_now(TWO, 2), strict=True):
        assert [set(hit) for hit in hits] == [{"document", "score"}] * 2
        assert [hit["document"]["id"] for hit in hits] == [str(h.passage.id) for h in expected]
        assert [hit["score"] for hit in hits] == pytest.approx([h.score for h in expected], abs=2e-3)


def test_topk_defaults_to_three_and_scores_to_off(url: str) -> None:
    for body in ({"queries": TWO}, {"queries": TWO, "topk": None}):
        result = httpx.post(f"{url}/retrieve", json=body).json()["result"]
        assert [len(documents) for documents in result] == [3, 3]
        assert "contents" in result[0][0]
    assert httpx.post(f"{url}/retrieve", json={"queries": []}).json() == {"result": []}


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        ({"queries": ["a", " "]}, 400, "query 1 of 2 is empty"),
        ({"queries": "a"}, 422, "queries"),
        ({"queries": ["a"], "topk": 0}, 422, "topk"),
        ({"query": ["a"]}, 422, "queries"),
    ],
)
def test_faulty_requests_are_refused_with_a_reason(url: str, body: dict, status: int, named: str) -> None:
    reply = httpx.post(f"{url}/retrieve", json=body)
    assert reply.status_code == status and named in reply.text


def test_health_readiness_and_metrics(url: str) -> None:
    def counted() -> float:
        lines = httpx.get(f"{url}/metrics").text.splitlines()
        return float(next(line for line in lines if line.startswith("parallelsearch_queries_total")).split()[1])

    assert httpx.get(f"{url}/health").json() == {"status": "alive"}
    ready = httpx.get(f"{url}/ready").json()
    assert (ready["status"], ready["kind"], ready["ntotal"]) == ("ready", "flat", 43)
    before = counted()
    httpx.post(f"{url}/retrieve", json={"queries": TWO})
    assert counted() == before + 2


def test_our_client_gets_what_the_local_retriever_finds(url: str, retriever: LocalRetriever) -> None:
    queries = [
        retriever.corpus[n].title for n in (40, 41, 3)
    ]  # the long one and the one with tabs, quotes, line breaks

    async def ask() -> list:
        async with HttpRetriever(url) as client:
            assert (await client.wait_until_ready(10))["dim"] == 384
            assert await client.search([], 3) == []
            return await client.search(queries, 3)

    expected = retriever.search_now(queries, 3)
    found = asyncio.run(ask())
    assert [[h.passage for h in hits] for hits in found] == [[h.passage for h in hits] for hits in expected]


def test_many_clients_at_once_each_get_their_own_answer(url: str, retriever: LocalRetriever) -> None:
    titles = [retriever.corpus[n].title for n in range(30)]
    expected = [hits[0].passage.id for hits in retriever.search_now(titles, 1)]

    def ask(title: str) -> int:
        body = {"queries": [title], "topk": 1, "return_scores": True}
        return int(httpx.post(f"{url}/retrieve", json=body, timeout=60).json()["result"][0][0]["document"]["id"])

    with ThreadPoolExecutor(10) as pool:
        assert list(pool.map(ask, titles)) == expected


def test_the_client_reports_the_servers_refusal(url: str) -> None:
    async def ask() -> None:
        async with HttpRetriever(f"{url}/retrieve") as client:
            await client.search(["a", ""], 1)

    with pytest.raises(RetrieverError, match=r"status 400.*query 1 of 2 is empty"):
        asyncio.run(ask())


def test_a_port_in_use_is_one_sentence(study: Study) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start(study.index, "--port", str(port))
        _, errors = process.communicate(timeout=START_SECONDS)
    assert process.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in errors and "choose another --port" in errors
    assert "Traceback" not in errors


def test_a_server_of_parts_that_do_not_match_stops_with_one_sentence(own_study: Study) -> None:
    manifest = own_study.corpus / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "sha256": "0ther"}))
    ready = own_study.root / "ready.json"
    process = start(own_study.index, "--port", "0", "--ready-file", str(ready))
    _, errors = process.communicate(timeout=START_SECONDS)
    assert process.returncode == 1 and not ready.exists()
    assert "corpus sha256" in errors and "0ther" in errors and "Traceback" not in errors


@pytest.mark.slow
def test_it_answers_not_ready_while_loading_and_finishes_requests_when_stopped(study: Study, tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    ready.write_text("{}")  # left by a killed server: must not count
    process = start(study.index, "--port", "0", "--ready-file", str(ready), "--device", "cpu")
    assert process.stderr is not None
    address = process.stderr.readline().split()[2].rstrip(",")
    assert not ready.exists()
    deadline = time.monotonic() + START_SECONDS
    statuses = []
    while not ready.exists() and time.monotonic() < deadline:
        try:
            statuses.append(httpx.get(f"{address}/ready", timeout=30).status_code)
        except httpx.ConnectError:
            statuses.append(0)
        time.sleep(0.02)
    assert 503 in statuses
    with ThreadPoolExecutor(1) as pool:
        body = {"queries": [f"question number {n} about a drummer" for n in range(60)], "topk": 1}
        reply = pool.submit(httpx.post, f"{address}/retrieve", json=body, timeout=60)
        time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert len(reply.result().json()["result"]) == 60
    assert process.wait(30) == 0
    assert not ready.exists()
