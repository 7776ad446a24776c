"""Letting a policy answer a set of questions: many episodes in flight, in the questions' order."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from parallelsearch.config import AgentConfig
from parallelsearch.engines.engine import Engine, Sampling
from parallelsearch.records import Episode, Question, Structure
from parallelsearch.retrieval.retriever import Retriever
from parallelsearch.strategies.strategy import answer


def without_last_batches(questions: Sequence[Question], size: int) -> list[Question]:
    """`questions` in order without the last len % size ones of each structure; size 0 keeps all.

    A data loader that drops its last incomplete batch, as the published evaluation of the subsets does, leaves these.
    """
    counts = Counter(question.structure for question in questions)
    kept = {structure: count - count % size if size else count for structure, count in counts.items()}
    seen: Counter[Structure] = Counter()
    chosen = []
    for question in questions:
        seen[question.structure] += 1
        if seen[question.structure] <= kept[question.structure]:
            chosen.append(question)
    return chosen


async def answer_all(
    questions: Sequence[Question],
    engine: Engine,
    retriever: Retriever,
    agent: AgentConfig,
    *,
    temperature: float,
    seed: int,
    in_flight: int,
    finished: Callable[[Episode], None] = lambda episode: None,
) -> list[Episode]:
    """One episode a question, in the questions' order; at most `in_flight` at once.

    With a temperature above 0, question i draws with seed `seed` * 1,000,003 + i, whatever else is in flight.
    """
    free = asyncio.Semaphore(in_flight)

    async def answer_one(number: int, question: Question) -> Episode:
        sampling = Sampling(temperature=temperature, seed=seed * 1_000_003 + number if temperature > 0 else None)
        async with free:
            episode = await answer(question, engine, retriever, agent, sampling)
        finished(episode)
        return episode

    return list(await asyncio.gather(*(answer_one(*item) for item in enumerate(questions))))
