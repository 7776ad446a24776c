"""Minutes of mixed load on one server: does it answer with nothing but what it promises, and does its memory stay flat?

    python benchmarks/load_server.py --work results-bench --questions results-bench/questions/hotpotqa.parquet

Agents that search (one to four sub-queries; some queries come again and again), requests that are refused for a reason,
clients that hang up, and at times more agents than the queue admits. Ends with exit code 1 when a status came that was
not expected, or when the memory grew by more than 5% after the first fifth of the time (caches fill in it).
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import httpx
import numpy as np
import typer
from bench_server import free_port, running

from parallelsearch.questions.store import read_questions
from parallelsearch.retrieval.serving.client import HttpRetriever

AGENTS = 24
CROWD = 200  # agents that come for CROWD_SECONDS once every minute
CROWD_SECONDS = 3.0
MAX_WAITING = 128
CACHED_QUERIES = 500
EXPECTED = {
    "search": {200, 503},
    "empty query": {400, 503},
    "not JSON": {422},
    "long body": {413},
    "metrics": {200},
    "crowd": {200, 503},
}
GROWTH = 0.05


def main(
    work: Path = typer.Option(..., help="Folder with corpus, encoder and dense (an index)."),
    questions: Path = typer.Option(..., help="Questions to ask."),
    minutes: float = typer.Option(10.0, help="Length of the load."),
) -> None:
    """Prints the statuses of each kind of request, and the memory of the server over the time."""
    texts = [question.text for question in read_questions(questions)]
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "parallelsearch.cli",
        "retriever",
        "serve",
        "--index",
        work / "dense",
        "--port",
        port,
    ]
    command += ["--max-waiting", MAX_WAITING, "--cached-queries", CACHED_QUERIES]
    with running(command) as process:
        load = Load(f"http://127.0.0.1:{port}", texts, process.pid, minutes * 60)
        asyncio.run(load.run())
    raise typer.Exit(0 if load.report() else 1)


class Load:
    """The agents, and what became of their requests."""

    def __init__(self, url: str, texts: Sequence[str], pid: int, seconds: float) -> None:
        self.url = url
        self.texts = texts
        self.pid = pid
        self.seconds = seconds
        self.statuses: Counter[tuple[str, int | str]] = Counter()
        self.memory: list[int] = []
        self.random = random.Random(0)

    async def run(self) -> None:
        """All agents until the time is over."""
        await HttpRetriever(self.url).wait_until_ready(120)
        async with httpx.AsyncClient(
            base_url=self.url, timeout=60, limits=httpx.Limits(max_connections=None)
        ) as client:
            self.end = time.monotonic() + self.seconds
            await asyncio.gather(
                *(self.search(client, "search", self.end) for _ in range(AGENTS)),
                self.faults(client),
                self.crowds(client),
                self.hang_up(),
                self.watch_memory(),
            )

    async def search(self, client: httpx.AsyncClient, kind: str, end: float) -> None:
        """One agent: asks again when it is answered, and a little later when it is sent away."""
        while time.monotonic() < end:
            queries = [self.query() for _ in range(self.random.randint(1, 4))]
            status = await self.post(client, kind, json={"queries": queries, "topk": self.random.choice([1, 3, 10])})
            if status == 503:
                await asyncio.sleep(self.random.uniform(0.5, 1.5))

    def query(self) -> str:
        """One of a hundred queries that come again, or one that never came before."""
        text = self.random.choice(self.texts)
        return (
            self.texts[self.random.randrange(100)] if self.random.random() < 0.3 else f"{text} {self.random.random()}"
        )

    async def faults(self, client: httpx.AsyncClient) -> None:
        """Requests that are to be refused, and readers of the metrics."""
        while time.monotonic() < self.end:
            await self.post(client, "empty query", json={"queries": ["a", " "]})
            await self.post(client, "not JSON", content=b"queries=a")
            await self.post(client, "long body", content=b"[" + b" " * 2**21)
            self.statuses["metrics", (await client.get("/metrics")).status_code] += 1
            await asyncio.sleep(0.2)

    async def crowds(self, client: httpx.AsyncClient) -> None:
        """Once a minute, and at the beginning, more agents than the queue admits."""
        while time.monotonic() < self.end:
            until = min(time.monotonic() + CROWD_SECONDS, self.end)
            await asyncio.gather(*(self.search(client, "crowd", until) for _ in range(CROWD)))
            await asyncio.sleep(max(0.0, min(60.0, self.end - time.monotonic())))

    async def hang_up(self) -> None:
        """Clients that send a search and do not wait for the answer."""
        host, port = self.url.removeprefix("http://").split(":")
        body = b'{"queries": ["who was here"]}'
        head = f"POST /retrieve HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        while time.monotonic() < self.end:
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(head + body[: self.random.choice([5, len(body)])])
            await writer.drain()
            writer.close()
            self.statuses["hung up", "-"] += 1
            await asyncio.sleep(0.5)

    async def watch_memory(self) -> None:
        """Resident bytes of the server, ten times a minute."""
        while time.monotonic() < self.end:
            await asyncio.sleep(6)
            status = Path(f"/proc/{self.pid}/status").read_text()
            self.memory.append(int(status.split("VmRSS:")[1].split()[0]) * 1024)

    async def post(self, client: httpx.AsyncClient, kind: str, **content: object) -> int | str:
        """Sends one request and counts its status, or the name of the failure."""
        try:
            status: int | str = (await client.post("/retrieve", **content)).status_code  # type: ignore[arg-type]
        except httpx.WriteError:
            status = 413  # the server stopped reading a body that is too long
        except httpx.HTTPError as error:
            status = type(error).__name__
        self.statuses[kind, status] += 1
        return status

    def report(self) -> bool:
        """Prints everything; True where nothing unexpected happened."""
        for (kind, status), count in sorted(self.statuses.items(), key=str):
            typer.echo(f"| {kind} | {status} | {count} |")
        unexpected = {key for key in self.statuses if key[1] not in EXPECTED.get(key[0], {"-"})}
        settled = np.array(self.memory[len(self.memory) // 5 :]) / 2**20
        growth = settled[-len(settled) // 4 :].mean() / settled[: len(settled) // 4].mean() - 1
        typer.echo(
            f"memory after the first fifth: {settled.min():.0f} to {settled.max():.0f} MiB;"
            f" last quarter of it against the first: {growth:+.1%}; unexpected: {unexpected or 'nothing'}"
        )
        return not unexpected and growth < GROWTH


if __name__ == "__main__":
    typer.run(main)
