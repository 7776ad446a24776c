"""Episodes a second of the asynchronous episode loop against a loop that moves a whole batch from turn to turn.

    python benchmarks/bench_rollout.py results/warm_start/seed0/policy results/index/CORPUS.ENCODER.KIND \
      results/questions/geoworld.test.parquet

The turn-synchronous side is what Search-R1's run_llm_loop does: all episodes of a batch generate, then all searches are
made in one call, then the next turn; the batch ends when its last episode ends, and only then the next one begins. Both
sides have the same engine, the same episodes at once, the same questions and seeds (and must give the same episodes),
and searches that take `--search-ms` longer than the index needs. They take turns, round after round. As in the laptop
study evaluation.batch_size episodes are in flight, and one thread computes for the engine (OMP_NUM_THREADS).
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import typer

from parallelsearch.agent.episode import run_episode
from parallelsearch.agent.steps import search
from parallelsearch.config import AgentConfig
from parallelsearch.engines.engine import Generation, Sampling
from parallelsearch.engines.hf import HFEngine
from parallelsearch.questions.store import read_questions
from parallelsearch.records import Hit, Question
from parallelsearch.retrieval.opening import open_retriever
from parallelsearch.retrieval.retriever import Retriever

Side = Callable[[Sequence[Question]], Awaitable[list[str]]]
_SEED = 1_000_003


def main(
    policy: Path = typer.Argument(help="Folder of a policy."),
    index: Path = typer.Argument(help="Folder of an index."),
    questions: Path = typer.Argument(help="Question file."),
    episodes: int = typer.Option(256, help="Episodes of one turn of a side."),
    at_once: int = typer.Option(64, help="Episodes in flight; the size of the synchronous side's batches."),
    search_ms: float = typer.Option(200.0, help="What a search takes, beside the index."),
    rounds: int = typer.Option(5, help="How often the sides take turns."),
) -> None:
    """Prints episodes a second of both sides, their ratio, and what a search for two sub-queries takes."""
    asked = read_questions(questions)
    asked = [asked[number % len(asked)] for number in range(episodes)]
    engine, retriever = HFEngine.open(policy, max_rows=at_once), SlowRetriever(open_retriever(index), search_ms / 1000)
    agent = AgentConfig()

    async def one_by_one(questions: Sequence[Question]) -> list[str]:
        free = asyncio.Semaphore(at_once)

        async def one(number: int) -> str:
            async with free:
                return await episode(number, questions[number], engine, retriever, agent)

        return list(await asyncio.gather(*(one(number) for number in range(len(questions)))))

    async def batch_by_batch(questions: Sequence[Question]) -> list[str]:
        found: list[str] = []
        for start in range(0, len(questions), at_once):
            numbers = range(start, min(start + at_once, len(questions)))
            turns = Turns(engine, retriever, len(numbers))

            async def one(number: int, turns: Turns = turns) -> str:
                try:
                    return await episode(number, questions[number], turns, turns, agent)
                finally:
                    turns.leave()

            found += await asyncio.gather(*(one(number) for number in numbers))
        return found

    asyncio.run(compare({"turn by turn": batch_by_batch, "asynchronous": one_by_one}, asked, rounds))
    asyncio.run(sub_queries(retriever, asked))
    engine.close()


async def episode(number: int, question: Question, engine: Any, retriever: Retriever, agent: AgentConfig) -> str:
    """The transcript of one episode, sampled with the seed of its number."""
    made = await run_episode(question, engine, retriever, agent, Sampling(1.0, seed=_SEED + number))
    return made.episode.transcript


async def compare(sides: dict[str, Side], asked: Sequence[Question], rounds: int) -> None:
    """Both sides in turns; an error where their episodes differ."""
    await sides["asynchronous"](asked)  # warm up: the retriever then knows the embeddings of all queries
    rates: dict[str, list[float]] = {name: [] for name in sides}
    transcripts: list[str] = []
    for number in range(rounds):
        for name, side in sides.items():
            started = time.perf_counter()
            made = await side(asked)
            rates[name].append(len(asked) / (time.perf_counter() - started))
            transcripts = transcripts or made
            if made != transcripts:
                raise SystemExit(f"{name}: other episodes than before, although the seeds are the same")
            typer.echo(f"round {number + 1}, {name}: {rates[name][-1]:.1f} episodes/s", err=True)
    base = rates["turn by turn"]
    typer.echo("| side | episodes/s (median) | ratio (median of the rounds) |\n|---|---:|---:|")
    for name, values in rates.items():
        ratio = statistics.median(a / b for a, b in zip(values, base, strict=True))
        typer.echo(f"| {name} | {statistics.median(values):.1f} | {ratio:.2f} |")


async def sub_queries(retriever: Retriever, asked: Sequence[Question]) -> None:
    """Seconds of a search turn with one and with two sub-queries, and of two turns with one each."""
    seconds: dict[str, list[float]] = {"one sub-query": [], "two sub-queries": [], "two searches": []}
    for first, second in zip(asked[:20:2], asked[1:20:2], strict=True):
        one = (await search([first.text], retriever, 1))[1]
        other = (await search([second.text], retriever, 1))[1]
        both = (await search([first.text[::-1], second.text[::-1]], retriever, 1))[1]  # texts that no cache has seen
        for name, value in zip(seconds, (one, both, one + other), strict=True):
            seconds[name].append(value)
    typer.echo(", ".join(f"{name}: {1000 * statistics.median(values):.0f} ms" for name, values in seconds.items()))


class SlowRetriever:
    """A retriever whose every call takes `seconds` more."""

    def __init__(self, inner: Retriever, seconds: float) -> None:
        self._inner, self._seconds = inner, seconds

    async def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        await asyncio.sleep(self._seconds)
        return await self._inner.search(queries, top_k)


class Turns:
    """Engine and retriever of a batch: nobody goes on before everybody waits; then all search, or else all generate."""

    def __init__(self, engine: HFEngine, retriever: Retriever, active: int) -> None:
        self.tokenizer = engine.tokenizer
        self._engine, self._retriever, self._active = engine, retriever, active
        self._searches: list[tuple[Sequence[str], int, asyncio.Future[list[list[Hit]]]]] = []
        self._generations: list[tuple[tuple[Any, ...], dict[str, Any], asyncio.Future[Generation]]] = []
        self._steps: set[asyncio.Task[None]] = set()

    async def generate(self, *arguments: Any, **options: Any) -> Generation:
        future: asyncio.Future[Generation] = asyncio.get_running_loop().create_future()
        self._generations.append((arguments, options, future))
        self._go_on()
        return await future

    async def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        future: asyncio.Future[list[list[Hit]]] = asyncio.get_running_loop().create_future()
        self._searches.append((queries, top_k, future))
        self._go_on()
        return await future

    def leave(self) -> None:
        """An episode is over."""
        self._active -= 1
        self._go_on()

    def _go_on(self) -> None:
        if self._active and len(self._searches) + len(self._generations) == self._active:
            step = asyncio.create_task(self._search_all() if self._searches else self._generate_all())
            self._steps.add(step)
            step.add_done_callback(self._steps.discard)

    async def _search_all(self) -> None:
        waiting, self._searches = self._searches, []
        queries = [query for texts, _, _ in waiting for query in texts]
        results = iter(await self._retriever.search(queries, waiting[0][1]))
        for texts, _, future in waiting:
            future.set_result([next(results) for _ in texts])

    async def _generate_all(self) -> None:
        waiting, self._generations = self._generations, []
        made = await asyncio.gather(*(self._engine.generate(*args, **options) for args, options, _ in waiting))
        for (_, _, future), generation in zip(waiting, made, strict=True):
            future.set_result(generation)


if __name__ == "__main__":
    typer.run(main)
