"""Whatever a model emits: one action, in linear time, and an episode that ends within its limits."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import ScriptedEngine, WordRetriever

from parallelsearch.agent.episode import run_episode
from parallelsearch.agent.protocol import SEPARATOR, defuse, parse_generation, scan_blocks
from parallelsearch.config import AgentConfig
from parallelsearch.engines.engine import Sampling
from parallelsearch.records import Action, Question, StopReason, Structure

NAMES = ("think", "search", "information", "answer")
TAGS = [f"<{slash}{name}>" for name in NAMES for slash in ("", "/")]
PIECE = st.one_of(
    st.sampled_from([*TAGS, *(tag.upper() for tag in TAGS), SEPARATOR, "#", "<", "</", "Oslo", " ", "\n"]),
    st.text(max_size=8),
)
# A few pieces, each repeated up to 60 times: also what a model says that has lost its way.
EMITTED = st.lists(st.tuples(PIECE, st.sampled_from([1, 1, 1, 2, 60])), max_size=12).map(
    lambda pairs: "".join(piece * times for piece, times in pairs)
)


@settings(deadline=None, max_examples=80)
@given(EMITTED)
def test_any_text_is_exactly_one_action(text: str) -> None:
    parsed = parse_generation(text)
    assert (parsed.action is Action.SEARCH) is bool(parsed.sub_queries)
    assert (parsed.action is Action.ANSWER) is (parsed.answer is not None)
    for query in parsed.sub_queries:
        assert query == query.strip() != "" and query in text
        assert SEPARATOR not in query and not any(tag in query for tag in TAGS)
    if "</search>" not in text and "</answer>" not in text:
        assert parsed.action is Action.INVALID


@settings(deadline=None, max_examples=80)
@given(EMITTED)
def test_blocks_lie_one_after_another_and_leave_only_white_space_out(text: str) -> None:
    end = 0
    for block in scan_blocks(text):
        assert text[end : block.start].strip() == "" and block.start < block.end
        assert block.inner in text[block.start : block.end]
        end = block.end
    assert text[end:].strip() == ""


def seconds(text: str) -> float:
    """Processor time of reading `text`, the least of three."""
    found = []
    for _ in range(3):
        started = time.process_time()
        parse_generation(text)
        defuse(text)
        found.append(time.process_time() - started)
    return min(found)


@pytest.mark.parametrize(
    "piece",
    [
        *TAGS,
        "<search> a ",
        "<answer><search>",
        "<think></think>",
        "<search>a</search>",
        "##",
        "<",
        "<SEARCH>",
        " ",
        "</",
    ],
)
def test_reading_takes_time_in_proportion_to_the_length(piece: str) -> None:
    """16 times the length may take 16 times as long, and 3 times more for noise; in quadratic time it takes 256."""
    count = 160_000 // len(piece)
    short, long = seconds(piece * (count // 16)), seconds(piece * count)
    assert long < 48 * max(short, 0.0005)


AGENT = AgentConfig(
    max_search_turns=3,
    max_sub_queries=2,
    max_generation_tokens=80,
    max_sub_query_result_tokens=60,
    max_prompt_tokens=200,
    max_response_tokens=400,
    on_invalid="retry",
)
QUESTION = Question("q", "d", "test", "Which is older, Oslo or Lima?", ("Oslo",), "c", Structure.PARALLEL)


@settings(deadline=None, max_examples=40)
@given(st.lists(EMITTED, min_size=4, max_size=4))
def test_an_episode_ends_within_its_limits(tokenizer, passages, texts: list[str]) -> None:
    retriever = WordRetriever(passages)
    engine = ScriptedEngine(tokenizer, [text or "?" for text in texts])
    rollout = asyncio.run(run_episode(QUESTION, engine, retriever, AGENT, Sampling()))
    episode = rollout.episode
    assert episode.stop_reason in (StopReason.ANSWERED, StopReason.TURN_LIMIT, StopReason.TOKEN_LIMIT)
    assert 1 <= episode.llm_calls <= AGENT.max_search_turns + 1
    assert len(rollout.response_ids) <= AGENT.max_response_tokens
    assert len(rollout.response_ids) == len(rollout.trains_on) == len(rollout.log_probs)
    assert all(turn.model_tokens <= AGENT.max_generation_tokens for turn in episode.turns)
    assert all(len(queries) <= AGENT.max_sub_queries for queries in retriever.calls)
    assert len(retriever.calls) == episode.searches or episode.stop_reason is StopReason.TURN_LIMIT
    assert (episode.answer is not None) is (episode.stop_reason is StopReason.ANSWERED)
