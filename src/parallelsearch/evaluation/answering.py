"""Letting a policy answer a set of questions: the episode loop, many episodes in flight, in the questions' order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from parallelsearch.agent.engine import Engine, Sampling
from parallelsearch.agent.episode import Rollout, run_episode
from parallelsearch.config import AgentConfig
from parallelsearch.records import Question
from parallelsearch.retrieval.retriever import Retriever


async def answer_all(
    questions: Sequence[Question],
    engine: Engine,
    retriever: Retriever,
    agent: AgentConfig,
    *,
    temperature: float,
    seed: int,
    in_flight: int,
    finished: Callable[[Rollout], None] = lambda rollout: None,
) -> list[Rollout]:
    """One rollout a question, in the questions' order; at most `in_flight` at once.

    With a temperature above 0, question i draws with seed `seed` * 1,000,003 + i, whatever else is in flight.
    """
    free = asyncio.Semaphore(in_flight)

    async def answer(number: int, question: Question) -> Rollout:
        sampling = Sampling(temperature=temperature, seed=seed * 1_000_003 + number if temperature > 0 else None)
        async with free:
            rollout = await run_episode(question, engine, retriever, agent, sampling)
        finished(rollout)
        return rollout

    return list(await asyncio.gather(*(answer(*item) for item in enumerate(questions))))
