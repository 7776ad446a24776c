"""The one interface of every way of answering a question, and the table of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, get_args

from parallelsearch.agent.episode import run_episode
from parallelsearch.config import STRATEGIES, AgentConfig
from parallelsearch.engines.engine import Engine, Sampling
from parallelsearch.records import Episode, Question, Turn
from parallelsearch.strategies.prompted import PromptedEpisode, run_prompted

if TYPE_CHECKING:
    from parallelsearch.retrieval.retriever import Retriever

# The names stand in the source, in config.STRATEGIES; a configuration only chooses among them.
PROMPTED: dict[str, Callable[[PromptedEpisode], Awaitable[str | None]]] = {
    name: getattr(import_module(f"parallelsearch.strategies.{name}"), name)
    for name in get_args(STRATEGIES)
    if name != "search"
}


async def answer(
    question: Question,
    engine: Engine,
    retriever: Retriever,
    agent: AgentConfig,
    sampling: Sampling,
    on_turn: Callable[[Turn], None] = lambda turn: None,
) -> Episode:
    """Answers `question` with the strategy agent.strategy within the limits of `agent`; `on_turn` sees each turn.

    Failures of engine and retriever end the episode with the matching stop_reason; they are never raised.
    """
    if agent.strategy == "search":
        return (await run_episode(question, engine, retriever, agent, sampling, on_turn)).episode
    episode = PromptedEpisode(question, engine, retriever, agent, sampling, on_turn)
    return await run_prompted(PROMPTED[agent.strategy], episode)
