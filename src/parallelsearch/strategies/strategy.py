"""The one interface of every way of answering a question, and the table of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from parallelsearch.agent.engine import Engine, Sampling
from parallelsearch.agent.episode import run_episode
from parallelsearch.config import AgentConfig
from parallelsearch.records import Episode, Question, Turn
from parallelsearch.strategies.chain_of_thought import chain_of_thought
from parallelsearch.strategies.dag_plan import dag_plan
from parallelsearch.strategies.direct import direct
from parallelsearch.strategies.ircot import ircot
from parallelsearch.strategies.iter_retgen import iter_retgen
from parallelsearch.strategies.prompted import PromptedEpisode, run_prompted
from parallelsearch.strategies.rag import rag
from parallelsearch.strategies.search_o1 import search_o1

if TYPE_CHECKING:
    from parallelsearch.retrieval.retriever import Retriever

# config.STRATEGIES names these and 'search', the agent's own loop.
PROMPTED: dict[str, Callable[[PromptedEpisode], Awaitable[str | None]]] = {
    "direct": direct,
    "chain_of_thought": chain_of_thought,
    "rag": rag,
    "ircot": ircot,
    "iter_retgen": iter_retgen,
    "search_o1": search_o1,
    "dag_plan": dag_plan,
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
