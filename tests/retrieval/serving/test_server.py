"""The server over a real socket, asked as Search-R1's clients ask, and by our own client."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from small_study import Study

from parallelsearch.errors import RetrieverError
from parallelsearch.records import Passage
from parallelsearch.retrieval.retriever import LocalRetriever
from parallelsearch.retrieval.serving.client import HttpRetriever
from parallelsearch.serving.server import open_socket

START_SECONDS = 120
TWO = ["drummers of rock bands", "a long list of items"]


def start(index: Path, *options: str, env: Mapping[str, str] = os.environ) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "parallelsearch.cli", "retriever", "serve", "--index", str(index), *options]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**env, "OMP_NUM_THREADS": "1"})


def contents(passage: Passage) -> str:
    title, text = (part.replace('"', '""') for part in (passage.title, passage.text))
    return f'"{title}"\n{text}'


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
    assert set(document) == {"id", "contents"}  # what the published corpus has, and so what Search-R1 replies with
    assert document["contents"] == contents(passage)


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


def test_the_batch_of_a_turn_is_answered_whole_and_an_empty_query_with_no_passages(url: str) -> None:
    result = httpx.post(f"{url}/retrieve", json={"queries": ["Oslo"] * 2559 + [""]}, timeout=60).json()["result"]
    assert [len(hits) for hits in result] == [3] * 2559 + [0]


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        ({"queries": "a"}, 422, "queries: Input should be a valid array"),
        ({"queries": ["a", 5]}, 422, "queries.1: Input should be a valid string"),
        ({"queries": ["a"], "topk": 0}, 422, "topk: Input should be greater than or equal to 1"),
        ({"queries": ["a"], "topk": 1001}, 422, "topk: Input should be less than or equal to 1000"),
        ({"queries": ["a"] * 16_385}, 422, "queries: List should have at most 16384 items"),
        ({"queries": ["a"] * 513, "topk": 1000}, 422, "513 queries with topk 1000 want more than 512000 passages"),
        ({"queries": ["a" * 10_001]}, 422, "queries.0: String should have at most 10000 characters"),
        ({"query": ["a"]}, 422, "queries: Field required"),
        ([], 422, "the body: Input should be an object"),
        (b"queries=a", 422, "the body: Invalid JSON: expected value at line 1 column 1"),
        (b"", 422, "the body: Invalid JSON: EOF"),
        (b'{"queries": ["\\ud800"]}', 422, "the body: Invalid JSON: "),  # half of a surrogate pair
        (b'{"queries": ["\xff"]}', 422, "the body: Invalid JSON: invalid unicode"),  # not UTF-8
        (b'{"queries": ["' + b"a" * 10_000_000 + b'"]}', 413, "the body has more than 8388608 bytes"),
    ],
)
def test_faulty_requests_are_refused_with_one_sentence(url: str, body: object, status: int, named: str) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = httpx.post(f"{url}/retrieve", content=content, headers={"content-type": "application/json"}, timeout=60)
    assert reply.status_code == status, reply.text
    sentence = reply.json()["detail"]
    assert named in sentence and sentence.endswith(".") and "\n" not in sentence and len(sentence) < 250


def test_a_long_body_of_unannounced_length_is_refused_and_an_endless_one_cut_off(url: str) -> None:
    sent = 0

    def parts(number: int) -> Iterator[bytes]:
        nonlocal sent
        for _ in range(number):
            sent += 2**20
            yield b" " * 2**20

    reply = httpx.post(f"{url}/retrieve", content=parts(10), timeout=60)
    assert reply.status_code == 413 and "more than 8388608 bytes" in reply.json()["detail"]
    sent = 0
    with suppress(httpx.TransportError):  # the connection is closed while the client still sends
        assert httpx.post(f"{url}/retrieve", content=parts(1000), timeout=60).status_code == 413
    assert sent < 200 * 2**20
    assert httpx.get(f"{url}/health").status_code == 200


def test_more_passages_than_there_are_gives_them_all_and_odd_characters_are_searched(url: str) -> None:
    queries = ["drummer\u0000\u0007\u202e", "\U0001f941 \u0939\u093f \u0627\u0644", "'; DROP TABLE passages; --"]
    result = httpx.post(f"{url}/retrieve", json={"queries": queries, "topk": 1000}, timeout=60).json()["result"]
    assert [len(documents) for documents in result] == [43, 43, 43]
    assert len({document["id"] for document in result[0]}) == 43


def test_the_reply_is_search_r1s_byte_for_byte(url: str, retriever: LocalRetriever) -> None:
    """Its server replies with the rows of the published jsonl, as FastAPI writes JSON."""
    expected = retriever.search_now(TWO, 2)
    rows = [[{"id": str(h.passage.id), "contents": contents(h.passage)} for h in hits] for hits in expected]
    plain = json.dumps({"result": rows}, ensure_ascii=False, separators=(",", ":")).encode()
    assert httpx.post(f"{url}/retrieve", json={"queries": TWO, "topk": 2}).content == plain
    scored = httpx.post(f"{url}/retrieve", json={"queries": TWO, "topk": 2, "return_scores": True})
    without = re.sub(rb'\{"document":(\{.*?\}),"score":[0-9.]+\}', rb"\1", scored.content)
    assert without == plain and scored.headers["content-type"] == "application/json"


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
            await client.search(["a"], 1001)

    with pytest.raises(RetrieverError, match=r"status 422.*topk: Input should be less than or equal to 1000"):
        asyncio.run(ask())


def test_the_end_of_a_reply_does_not_wait_for_an_acknowledgement() -> None:
    """Nagle's algorithm on the server and delayed acknowledgements of the client cost 40 ms a request together."""
    with open_socket("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        accepted.close()


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
        while "queries_in_hand 60.0" not in httpx.get(f"{address}/metrics", timeout=30).text:
            assert not reply.done(), reply.result()
        process.send_signal(signal.SIGTERM)
        assert len(reply.result().json()["result"]) == 60
    assert process.wait(30) == 0
    assert not ready.exists()


@pytest.mark.slow
def test_two_workers_answer_on_one_socket_with_a_token_and_end_together(study: Study, tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    environment = {**os.environ, "PARALLELSEARCH_RETRIEVER_TOKEN": "s3cret"}
    process = start(study.index, "--port", "0", "--workers", "2", "--ready-file", str(ready), env=environment)
    url = wait_for(ready, process)["url"]
    token = {"Authorization": "Bearer s3cret"}
    for headers in ({}, {"Authorization": "Bearer other"}, {"Authorization": "s3cret"}):
        refused = httpx.post(f"{url}/retrieve", json={"queries": TWO}, headers=headers)
        assert refused.status_code == 401 and "set PARALLELSEARCH_RETRIEVER_TOKEN to it" in refused.json()["detail"]
    assert httpx.get(f"{url}/health").status_code == 200
    assert httpx.get(f"{url}/ready").status_code == httpx.get(f"{url}/metrics").status_code == 401
    for number in range(20):  # each on a connection of its own, so that both workers get some
        body = {"queries": [f"question {number}", "a drummer"]}
        assert len(httpx.post(f"{url}/retrieve", json=body, headers=token, timeout=60).json()["result"]) == 2
    metrics = httpx.get(f"{url}/metrics", headers=token).text
    assert "parallelsearch_queries_total 40.0" in metrics  # of both, whoever is asked
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) >= 2
    process.terminate()
    assert process.wait(40) == 0 and not ready.exists()
    deadline = time.monotonic() + START_SECONDS
    while [child for child in children if Path(f"/proc/{child}").exists()]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_workers_whose_index_does_not_match_end_with_one_sentence(own_study: Study) -> None:
    manifest = own_study.corpus / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "sha256": "0ther"}))
    process = start(own_study.index, "--port", "0", "--workers", "2")
    _, errors = process.communicate(timeout=START_SECONDS)
    assert process.returncode == 1 and "corpus sha256" in errors and "Traceback" not in errors
