"""Sub-queries a second and latencies of this server against one that handles one request at a time (plain_server.py).

    python benchmarks/bench_server.py --work results-bench --questions results-bench/questions/hotpotqa.parquet

WORK is a folder that bench_recall.py made.

Agents ask again as soon as they have an answer, two sub-queries a request, every query once: real questions, and their
halves. Caches are off. Both servers run all the time, one of them has work: they take turns, round after round.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import aiohttp
import numpy as np
import typer

from parallelsearch.questions.store import read_questions
from parallelsearch.records import Hit, Question
from parallelsearch.retrieval.serving.client import HttpRetriever

SUB_QUERIES = 2
TOP_K = 3


def main(
    work: Path = typer.Option(
        ..., help="Folder with corpus, encoder and dense (an index), as bench_recall.py makes it."
    ),
    questions: Path = typer.Option(..., help="Questions whose supporting pages the corpus has."),
    agents: list[int] = typer.Option([1, 16, 64], help="Agents at once; repeatable."),
    rounds: int = typer.Option(3, help="How often the sides take turns."),
    seconds: float = typer.Option(10.0, help="Length of one turn."),
) -> None:
    """Prints a table of both sides, and whether they find the same passages."""
    asked = read_questions(questions)
    index, port = work / "dense", free_port()
    plain = [sys.executable, Path(__file__).with_name("plain_server.py"), "--index", index, "--port", port]
    plain += ["--encoder", work / "encoder", "--corpus", work / "corpus"]
    ours = [sys.executable, "-m", "parallelsearch.cli", "retriever", "serve", "--index", index, "--port", port + 1]
    ours += ["--cached-queries", 0]
    with running(plain), running(ours):
        asyncio.run(compare(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}", asked, agents, rounds, seconds))


async def compare(
    plain: str, ours: str, asked: Sequence[Question], agents: Sequence[int], rounds: int, seconds: float
) -> None:
    """All measurements, each side in its turn."""
    urls = {"plain": plain, "ours": ours}
    sides = {name: HttpRetriever(url, timeout=120.0) for name, url in urls.items()}
    for client in sides.values():
        await client.wait_until_ready(120)
        await client.search(["warm up"], TOP_K)
    texts = stream_of_queries(asked)
    rates: dict[tuple[str, int], list[float]] = defaultdict(list)
    waits: dict[tuple[str, int], list[float]] = defaultdict(list)
    for number, count in itertools.product(range(rounds), agents):
        for name, url in urls.items():
            answered, latencies = await load(url, texts, count, seconds)
            rates[name, count].append(answered)
            waits[name, count].extend(latencies)
            typer.echo(f"round {number + 1}, {count} agents, {name}: {answered:.0f} sub-queries/s", err=True)
    typer.echo("| agents | side | sub-queries/s (median) | p50 ms | p99 ms | ratio |\n|---:|---|---:|---:|---:|---:|")
    for count, name in itertools.product(agents, sides):
        p50, p99 = np.percentile(waits[name, count], [50, 99]) * 1000
        ratio = statistics.median(a / b for a, b in zip(rates[name, count], rates["plain", count], strict=True))
        typer.echo(
            f"| {count} | {name} | {statistics.median(rates[name, count]):.0f} | {p50:.0f} | {p99:.0f} | {ratio:.2f} |"
        )
    await same_passages(sides["plain"], sides["ours"], asked)
    for client in sides.values():
        await client.close()


async def load(url: str, texts: Iterator[str], agents: int, seconds: float) -> tuple[float, list[float]]:
    """Sub-queries a second and the seconds of each request, of `agents` that ask again as soon as they are answered.

    The agents run on the processors that the server computes on, so that what they cost is kept small (aiohttp).
    """
    latencies: list[float] = []
    begun = time.perf_counter()

    async def agent(session: aiohttp.ClientSession) -> None:
        while (sent := time.perf_counter()) < begun + seconds:
            queries = [next(texts) for _ in range(SUB_QUERIES)]
            body = {"queries": queries, "topk": TOP_K, "return_scores": True}
            async with session.post(f"{url}/retrieve", json=body) as reply:
                reply.raise_for_status()
                found = (await reply.json())["result"]
            assert [len(hits) for hits in found] == [TOP_K] * SUB_QUERIES
            latencies.append(time.perf_counter() - sent)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(agent(session) for _ in range(agents)))
    return len(latencies) * SUB_QUERIES / (time.perf_counter() - begun), latencies


async def same_passages(plain: HttpRetriever, ours: HttpRetriever, asked: Sequence[Question]) -> None:
    """Compares the passages that both sides find for every question.

    Scores in bfloat16 are off by a little: by how much is seen on passages that both sides found. Two passages whose
    float32 scores differ by less than that (99 of 100 times) are a tie.
    """
    theirs = await answers(plain, asked, 4 * TOP_K)
    own = await answers(ours, asked, TOP_K)
    exact = [{hit.passage.id: hit.score for hit in hits} for hits in theirs]
    off = [
        abs(hit.score - known[hit.passage.id])
        for hits, known in zip(own, exact, strict=True)
        for hit in hits
        if hit.passage.id in known
    ]
    noise = float(np.percentile(off, 99))
    equal = alike = 0
    for hits, known in zip(own, exact, strict=True):
        best = list(known)[:TOP_K]
        found = [hit.passage.id for hit in hits]
        equal += found == best
        alike += all(abs(known.get(a, -1.0) - known[b]) <= noise for a, b in zip(found, best, strict=True))
    share, share_alike = equal / len(asked), alike / len(asked)
    recalls = [
        np.mean([recall(question, hits[:TOP_K]) for question, hits in zip(asked, lists, strict=True)])
        for lists in (theirs, own)
    ]
    typer.echo(
        f"{len(asked)} questions: equal passages in equal order {share:.1%}, ties aside {share_alike:.1%}"
        f" (scores differ by at most {noise:.4f}, 99 of 100 times);"
        f" recall@{TOP_K} of supporting pages: plain {recalls[0]:.4f}, ours {recalls[1]:.4f}"
    )


async def answers(client: HttpRetriever, asked: Sequence[Question], top_k: int) -> list[list[Hit]]:
    """The passages of every question, asked for one by one."""
    return [(await client.search([question.text], top_k))[0] for question in asked]


def recall(question: Question, hits: Sequence[Hit]) -> float:
    """Share of the supporting pages among the passages."""
    gold = set(question.supporting_titles)
    return len(gold & {hit.passage.title for hit in hits}) / len(gold)


def stream_of_queries(asked: Sequence[Question]) -> Iterator[str]:
    """Queries without end and without repetition: questions, their halves, and both with a number."""
    for number in itertools.count():
        for question in asked:
            words = question.text.split()
            for text in (question.text, " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])):
                yield f"{text} {number}" if number else text


def free_port() -> int:
    """The first of two ports in a row that nobody listens on."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first, contextlib.suppress(OSError, OverflowError):
            port = first.getsockname()[1]
            with socket.create_server(("127.0.0.1", port + 1)):
                return int(port)


@contextlib.contextmanager
def running(command: Sequence[object]) -> Iterator[subprocess.Popen[bytes]]:
    """A server that ends with the block."""
    process = subprocess.Popen([str(part) for part in command])
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


if __name__ == "__main__":
    typer.run(main)
