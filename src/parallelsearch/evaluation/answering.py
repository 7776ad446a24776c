"""Letting a policy answer a set of questions: many episodes in flight, in the questions' order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from parallelsearch.agent.engine import Engine, Sampling
from parallelsearch.config import AgentConfig
from parallelsearch.records import Episode, Question
from parallelsearch.retrieval.retriever import Retriever
from parallelsearch.strategies.strategy import answer


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
