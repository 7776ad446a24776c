"""The client against servers that misbehave, each on a real socket."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from parallelsearch.errors import (
    MismatchError,
    RetrieverError,
    RetrieverOverloaded,
    RetrieverRefused,
    RetrieverTimeout,
    RetrieverUnreachable,
)
from parallelsearch.records import Passage
from parallelsearch.retrieval.serving.client import HttpRetriever

DOCUMENT = {"id": "7", "contents": '"Ron ""Amen-Ra"" Lawrence"\nHe said ""no"".'}


class Handler(BaseHTTPRequestHandler):
    """Answers POST with what the server's `answer` returns; counts the requests."""

    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.bodies.append(json.loads(body) if body else {"asked": self.path})
        self.server.answer(self, len(self.server.bodies))

    do_GET = do_POST

    def reply(self, status: int, content: str, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-type", kind)
        self.end_headers()
        self.wfile.write(content.encode())

    def hang_up(self) -> None:
        """Resets the connection without an answer."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def log_message(self, *arguments: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    answer: Callable[[Handler, int], None]
    bodies: list[dict]

    def handle_error(self, *arguments: object) -> None:
        pass


@contextmanager
def serving(answer: Callable[[Handler, int], None]) -> Iterator[tuple[str, list[dict]]]:
    with Server(("127.0.0.1", 0), Handler) as server:
        server.answer, server.bodies = answer, []
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", server.bodies
        server.shutdown()
        thread.join()


def ask(*urls: str, queries: list[str] | None = None, **options: float) -> list:
    async def run() -> list:
        async with HttpRetriever(*urls, **{"max_wait": 0.05, **options}) as client:
            return await client.search(queries or ["who?"], 3)

    return asyncio.run(run())


def body(*hits: object) -> str:
    return json.dumps({"result": [list(hits)]})


def test_search_r1s_own_reply_is_understood() -> None:
    def answer(handler: Handler, count: int) -> None:
        handler.reply(200, body({"document": DOCUMENT, "score": 0.5}))

    with serving(answer) as (url, bodies):
        (hits,) = ask(url)
    assert bodies == [{"queries": ["who?"], "topk": 3, "return_scores": True}]
    assert hits[0].passage == Passage(7, 'Ron "Amen-Ra" Lawrence', 'He said "no".') and hits[0].score == 0.5


BAD_REPLIES: dict[str, tuple[int, str, str, list[str]]] = {
    "status 500": (500, '{"detail": "out of memory"}', "application/json", ["status 500", "out of memory"]),
    "HTML with 200": (200, "<html>\n<title>Login</title>", "text/html", ["text/html", "<html> <title>Login"]),
    "broken JSON": (200, '{"result": [[', "application/json", ["instead of JSON", '{"result": [[']),
    "empty body": (200, "", "application/json", ["instead of JSON"]),
    "no result": (200, '{"answer": []}', "application/json", ["without a list 'result'"]),
    "a list": (200, "[]", "application/json", ["without a list 'result'"]),
    "too few lists": (200, '{"result": []}', "application/json", ["replied to 0 of 1 queries"]),
    "no scores": (200, body(DOCUMENT), "application/json", ["not a document with id, contents and score"]),
    "foreign id": (200, body({"document": {"id": "x", "contents": "a\nb"}, "score": 1}), "application/json", ["'x'"]),
    "score of text": (200, body({"document": DOCUMENT, "score": "high"}), "application/json", ["high"]),
    "refused": (422, '{"detail": "topk: too large"}', "application/json", ["status 422", "too large"]),
}


@pytest.mark.parametrize("case", BAD_REPLIES)
def test_a_bad_reply_is_one_error_with_its_head_and_is_not_asked_for_again(case: str) -> None:
    status, content, kind, named = BAD_REPLIES[case]
    with serving(lambda handler, count: handler.reply(status, content, kind)) as (url, bodies):
        with pytest.raises(RetrieverError) as raised:
            ask(url)
        assert all(part in str(raised.value) for part in [url, *named]), raised.value
        assert len(str(raised.value)) < 500 and "\n" not in str(raised.value)
        assert len(bodies) == 1


def test_a_slow_server_is_left_after_the_time_out() -> None:
    release = threading.Event()
    with serving(lambda handler, count: release.wait(20)) as (url, bodies):
        begun = time.monotonic()
        with pytest.raises(RetrieverTimeout, match=r"did not answer within 0\.3 s \(ReadTimeout\)"):
            ask(url, timeout=0.3)
        assert time.monotonic() - begun < 5
        assert len(bodies) == 1
        release.set()


def test_nothing_listening_is_reported_after_all_attempts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(RetrieverUnreachable, match=rf":{port}/retrieve could not be reached in 2 attempts"):
        ask(f"http://127.0.0.1:{port}", attempts=2)


def test_a_broken_connection_is_tried_again() -> None:
    def answer(handler: Handler, count: int) -> None:
        if count < 3:
            handler.hang_up()
        else:
            handler.reply(200, body({"document": DOCUMENT, "score": 0.5}))

    with serving(answer) as (url, bodies):
        assert len(ask(url)[0]) == 1
        assert len(bodies) == 3
    with serving(lambda handler, count: handler.hang_up()) as (url, bodies):
        with pytest.raises(RetrieverError, match="could not be reached in 3 attempts"):
            ask(url)
        assert len(bodies) == 3


def test_waiting_for_a_server_that_becomes_ready_and_for_one_that_does_not(tmp_path: Path) -> None:
    begun = time.monotonic()

    class Loading(Handler):
        def do_GET(self) -> None:
            late = time.monotonic() - begun > 1
            self.reply(200 if late else 503, '{"status": "ready"}' if late else '{"detail": "loading"}')

    async def wait(client: HttpRetriever, seconds: float) -> dict:
        async with client:
            return await client.wait_until_ready(seconds, interval=0.05)

    with Server(("127.0.0.1", 0), Loading) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(RetrieverError, match=r"was not ready after 0\.2 s; last answer: .*status 503"):
            asyncio.run(wait(HttpRetriever(url), 0.2))
        (tmp_path / "ready.json").write_text(json.dumps({"url": url}))
        client = HttpRetriever.from_ready_file(tmp_path / "ready.json", timeout=5.0)
        assert asyncio.run(wait(client, 20)) == {"status": "ready"}
        assert client.timeout == 5.0
        server.shutdown()


def test_one_client_serves_several_event_loops() -> None:
    with serving(lambda handler, count: handler.reply(200, body({"document": DOCUMENT, "score": 0.5}))) as (url, _):
        client = HttpRetriever(url)

        async def once() -> int:
            return len((await client.search(["who?"], 1))[0])

        assert [asyncio.run(once()) for _ in range(3)] == [1, 1, 1]
        assert len(client._clients) == 1


GOOD = body({"document": DOCUMENT, "score": 0.5})


def good(handler: Handler, count: int) -> None:
    handler.reply(200, GOOD)


def test_a_full_server_is_asked_again_after_as_long_as_it_says() -> None:
    def answer(handler: Handler, count: int) -> None:
        if count == 1:
            handler.reply(503, '{"detail": "9 queries are in hand"}', retry_after="1")
        else:
            handler.reply(200, GOOD)

    with serving(answer) as (url, bodies):
        begun = time.monotonic()
        assert len(ask(url, max_wait=5.0)[0]) == 1
        assert time.monotonic() - begun >= 1
        assert len(bodies) == 2
    with serving(lambda handler, count: handler.reply(503, "full", retry_after="0")) as (url, bodies):
        with pytest.raises(RetrieverOverloaded, match="status 503: 'full'"):
            ask(url)
        assert len(bodies) == 3


def test_a_refusal_is_an_error_of_its_own_kind() -> None:
    with serving(lambda handler, count: handler.reply(400, "query 0 of 1 is empty")) as (url, bodies):
        with pytest.raises(RetrieverRefused):
            ask(url)
        assert len(bodies) == 1


def test_a_server_of_a_pool_that_fails_is_left_for_another_and_looked_at_before_it_gets_work_again() -> None:
    failing = True

    def answer(handler: Handler, count: int) -> None:
        if failing:
            handler.hang_up()
        else:
            handler.reply(200, GOOD)

    async def run(client: HttpRetriever) -> None:
        nonlocal failing
        async with client:
            for _ in range(4):
                assert len((await client.search(["who?"], 3))[0]) == 1
            assert len(first) == 1  # it failed once and rests
            failing = False
            for server in client.pool.servers:
                server.rests_until = 0.0
            for _ in range(4):
                await client.search(["who?"], 3)

    with serving(answer) as (one, first), serving(good) as (two, second):
        asyncio.run(run(HttpRetriever(one, two, max_wait=0.05)))
    assert {"asked": "/ready"} in first and len(first) >= 3
    assert {"asked": "/ready"} not in second


def test_work_goes_to_the_least_busy_server() -> None:
    def slow(handler: Handler, count: int) -> None:
        time.sleep(0.3)
        handler.reply(200, GOOD)

    async def run(client: HttpRetriever) -> None:
        async with client:
            await asyncio.gather(*(client.search([f"who {n}?"], 3) for n in range(6)))

    with serving(slow) as (one, first), serving(slow) as (two, second):
        asyncio.run(run(HttpRetriever(one, two)))
        assert (len(first), len(second)) == (3, 3)


def test_servers_of_different_indexes_are_no_pool() -> None:
    def describe(digest: str) -> Callable[[Handler, int], None]:
        return lambda handler, count: handler.reply(200, json.dumps({"status": "ready", "sha256": digest}))

    async def wait(client: HttpRetriever) -> dict:
        async with client:
            return await client.wait_until_ready(5)

    with serving(describe("aa")) as (one, _), serving(describe("bb")) as (two, _):
        with pytest.raises(MismatchError, match=rf"{two} serves .*bb.*, but {one} .*aa.*; start both with the same"):
            asyncio.run(wait(HttpRetriever(one, two)))
        assert asyncio.run(wait(HttpRetriever(one, one)))["sha256"] == "aa"


def test_the_token_goes_with_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str | None] = []

    def answer(handler: Handler, count: int) -> None:
        given.append(handler.headers.get("authorization"))
        handler.reply(200, GOOD)

    with serving(answer) as (url, _):
        ask(url)
        monkeypatch.setenv("PARALLELSEARCH_RETRIEVER_TOKEN", "s3cret")
        ask(url)
    assert given == [None, "Bearer s3cret"]
