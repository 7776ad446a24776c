"""A budget read off an unlimited episode is what run_episode does under that limit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pandas as pd
import pytest
from by_hand import ORIGIN
from scripted import ScriptedEngine, WordRetriever

from parallelsearch.agent.episode import run_episode
from parallelsearch.config import AgentConfig
from parallelsearch.engines.engine import Sampling
from parallelsearch.evaluation import budgets
from parallelsearch.evaluation.budgets import Prefix, TurnSize, prefix
from parallelsearch.evaluation.episodes import row_of, write_episodes
from parallelsearch.records import Episode, Question, StopReason, Structure

ROOMY = AgentConfig(
    top_k=1,
    max_search_turns=6,
    max_generation_tokens=60,
    max_sub_query_result_tokens=40,
    max_response_tokens=2000,
    max_prompt_tokens=400,
)
QUESTION = Question(
    "q", "geoworld", "test", "Which is older, Oslo or Lima?", ("Oslo",), "comparison", Structure.PARALLEL
)
BOTH = "<think>two</think><search>founded Oslo ## founded Lima</search>"
ONE = "<think>one</think><search>founded Oslo</search>"
AGAIN = "<think>once more</think><search>founded Oslo ## founded  OSLO</search>"
RIGHT, WRONG = "<think>so</think><answer>Oslo</answer>", "<answer>Lima</answer>"
SCRIPTS = {
    "in parallel": [BOTH, RIGHT],
    "one by one": [ONE, "<search>founded Lima</search>", RIGHT],
    "parallel late": [ONE, AGAIN, BOTH, ONE, RIGHT],
    "wrong": [BOTH, WRONG],
    "at once": [RIGHT],
    "never": [ONE] * 7,
    "gibberish, then an answer": [ONE, "hm, let me see", BOTH, RIGHT],
}


def run(tokenizer, retriever: WordRetriever, script: str, **limits: int) -> Episode:
    agent = ROOMY.model_copy(update={"on_invalid": "retry", **limits})
    engine = ScriptedEngine(tokenizer, SCRIPTS[script], end_token=True)
    return asyncio.run(run_episode(QUESTION, engine, retriever, agent, Sampling())).episode


def loaded(tmp_path: Path, episode: Episode) -> pd.DataFrame:
    path = tmp_path / "episodes.parquet"
    write_episodes(path, [(episode, None)], arm="a", seed=0, provenance=ORIGIN)
    return budgets.load([path])


def read_off(file: pd.DataFrame, **limit: float) -> tuple[float, int, bool]:
    row = budgets.under(file, **limit).iloc[0]
    return row["em"], row["llm_calls"], row["decomposed"]


def figures(episode: Episode) -> tuple[float, int, bool]:
    row = row_of(episode, None, "a", 0)
    return row["em"], row["llm_calls"], row["decomposed"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_budget_of_llm_calls_is_an_episode_with_as_many(tmp_path: Path, tokenizer, retriever, script: str) -> None:
    unlimited = run(tokenizer, retriever, script)
    file = loaded(tmp_path, unlimited)
    for calls in range(2, 8):
        limited = run(tokenizer, retriever, script, max_search_turns=calls - 1)
        assert read_off(file, llm_calls=calls) == figures(limited), calls


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_budget_of_tokens_is_an_episode_with_as_many_at_every_edge(
    tmp_path: Path, tokenizer, retriever, script: str
) -> None:
    """Around the end of every generation and every observation: one token too few, just enough, one more."""
    unlimited = run(tokenizer, retriever, script)
    file = loaded(tmp_path, unlimited)
    used, edges = 0, {16, 17}
    for turn in unlimited.turns:
        for tokens in (turn.model_tokens, turn.observation_tokens):
            used += tokens
            edges |= {used - 1, used, used + 1}
    reasons = set()
    for tokens in sorted(edge for edge in edges if 16 <= edge <= 2000):
        limited = run(tokenizer, retriever, script, max_response_tokens=tokens)
        reasons.add(limited.stop_reason)
        assert read_off(file, response_tokens=tokens) == figures(limited), tokens
    if unlimited.stop_reason is StopReason.ANSWERED and unlimited.searches:
        assert reasons == {StopReason.TOKEN_LIMIT, StopReason.ANSWERED}


def test_an_episode_cut_by_hand() -> None:
    turns = [TurnSize(10, 20, False), TurnSize(10, 30, True), TurnSize(5, 0, False)]  # 10, 30, 40, 70, 75
    assert prefix(turns) == Prefix(3, True, True)
    assert prefix(turns, llm_calls=3) == Prefix(3, True, True)
    assert prefix(turns, llm_calls=2) == Prefix(2, True, False)
    assert prefix(turns, response_tokens=75) == Prefix(3, True, True)
    assert prefix(turns, response_tokens=74) == Prefix(3, True, False)  # the answer is cut
    assert prefix(turns, response_tokens=70) == Prefix(2, True, False)  # the passages fit, but no further token
    assert prefix(turns, response_tokens=69) == Prefix(2, True, False)  # they do not fit
    assert prefix(turns, response_tokens=39) == Prefix(2, False, False)  # the second search is cut and none
    assert prefix(turns, response_tokens=30) == Prefix(1, False, False)


def test_an_infrastructure_failure_stays_one_under_every_budget(tmp_path: Path, tokenizer, retriever) -> None:
    failed = Episode(QUESTION, (), None, StopReason.ENGINE_ERROR, False)
    row = budgets.under(loaded(tmp_path, failed), llm_calls=2).iloc[0]
    assert row["failed"] and row["em"] != row["em"]
