"""Every way of answering over real engines, passages and questions: it ends within its limits and counts right.

An engine is one entry of ENGINES: a context that makes an Engine of a model it writes to a folder.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from strategy_cases import CASES

from parallelsearch.config import AgentConfig, Bm25Config, PolicyConfig, ServerConfig
from parallelsearch.corpus.passages import build_corpus
from parallelsearch.engines.hf import HFEngine
from parallelsearch.engines.openai_engine import OpenAIEngine
from parallelsearch.evaluation.answering import answer_all
from parallelsearch.geoworld.facts import load_world, split_countries
from parallelsearch.geoworld.passages import passages_of
from parallelsearch.geoworld.questions import make_questions
from parallelsearch.questions.reader import read_file
from parallelsearch.records import Action, Episode, Passage, Question, StopReason
from parallelsearch.retrieval.indexes.bm25 import write_bm25
from parallelsearch.retrieval.opening import open_retriever
from parallelsearch.strategies.strategy import PROMPTED
from parallelsearch.training.process.simulator_process import served_policy
from parallelsearch.training.warm_start.packaged_policy import export_packaged_policy
from parallelsearch.training.warm_start.policy import build_policy, save_policy, train_tokenizer

ROOT = Path(__file__).resolve().parents[2]
GEOWORLD_QUESTIONS, REAL_QUESTIONS = 6, 20
AGENT = AgentConfig(
    top_k=2, max_search_turns=2, max_sub_queries=2, max_generation_tokens=16, max_sub_query_result_tokens=96,
    max_prompt_tokens=1500, max_response_tokens=300, max_reasoning_turns=4, max_document_chars=200,
    max_plan_questions=4, on_invalid="retry",
)  # fmt: skip
# The agent's own loop in three ways, then the prompted strategies.
WAYS: dict[str, dict[str, Any]] = {
    "search": {"prompt": "examples"},
    "research": {"prompt": "research_system", "tags": "research"},
    "r1": {"prompt": "r1", "max_search_turns": 0},
    **{name: {"strategy": name} for name in PROMPTED},
}
# At most so many generations and searches of an episode, counted by hand for AGENT.
LIMITS = {
    "search": (3, 3),  # two searches and an answer; a third search is asked for and not made
    "research": (3, 3),
    "r1": (1, 0),
    **{name: (case.most_calls, case.most_searches) for name, case in CASES.items()},
}


@contextmanager
def transformers(folder: Path) -> Iterator[HFEngine]:
    """The model in this process."""
    opened = HFEngine.open(folder, max_rows=16)
    yield opened
    opened.close()


@contextmanager
def server(folder: Path) -> Iterator[OpenAIEngine]:
    """The same model behind an OpenAI-compatible URL, in a process of its own."""
    with served_policy(folder, folder.parent, wait_seconds=300) as url:
        yield OpenAIEngine.open(ServerConfig(url=url, model="policy"), folder)


def scratch(folder: Path) -> None:
    """The laptop study's architecture with random weights: it says anything at all."""
    tokenizer = train_tokenizer(["Question: which is older, and who was it? The answer is 1: no.\n"] * 3, 400)
    save_policy(build_policy(PolicyConfig(hidden_size=64, layers=2), tokenizer, seed=1), tokenizer, folder)


def smollm2(folder: Path) -> None:
    """A published language model."""
    pytest.importorskip("gguf")
    export_packaged_policy("smollm2-135m-instruct", folder, ROOT / "config")


ENGINES = [
    pytest.param((scratch, transformers), id="scratch"),
    pytest.param((scratch, server), id="scratch-served"),
    pytest.param((smollm2, transformers), id="smollm2", marks=pytest.mark.arms),
    pytest.param((smollm2, server), id="smollm2-served", marks=pytest.mark.arms),
]


@pytest.fixture(scope="module", params=ENGINES)
def engine(request, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HFEngine | OpenAIEngine]:
    model, opened = request.param
    folder = tmp_path_factory.mktemp("engine") / "policy"
    model(folder)
    with opened(folder) as ready:
        yield ready


@pytest.fixture(scope="module")
def world() -> tuple[list[Passage], list[Question]]:
    """GeoWorld's articles, and questions over its test split."""
    whole = load_world(300)
    articles = passages_of(whole)
    part = whole.restricted_to(split_countries(whole, 0)["test"])
    return articles, make_questions(part, "test", GEOWORLD_QUESTIONS, 0, {entry.title: entry.id for entry in articles})


@pytest.fixture(scope="module")
def questions(world, shared_data: Path) -> list[Question]:
    """Questions of GeoWorld, then real ones of HotpotQA in its own layout."""
    path = shared_data / "raw" / "hotpotqa_official_100.json.gz"
    return [*world[1], *read_file("hotpotqa", path, split="dev").questions[:REAL_QUESTIONS]]


@pytest.fixture(scope="module")
def index(world, shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """BM25 over the articles and the real questions' paragraphs."""
    folder = tmp_path_factory.mktemp("index")
    with gzip.open(shared_data / "raw" / "hotpotqa_official_100.json.gz", "rt", encoding="utf-8") as stream:
        rows = json.load(stream)[:REAL_QUESTIONS]
    texts = {title: "".join(sentences) for row in rows for title, sentences in row["context"]}
    paragraphs = [Passage(number, *pair) for number, pair in enumerate(texts.items(), len(world[0]))]
    lines = [json.dumps(dataclasses.asdict(passage)) for passage in (*world[0], *paragraphs)]
    (folder / "raw.jsonl").write_text("\n".join(lines), encoding="utf-8")
    build_corpus("geoworld", folder / "raw.jsonl", folder / "corpus")
    write_bm25(folder / "corpus", folder / "index", Bm25Config())
    return folder / "index"


@pytest.mark.parametrize("way", WAYS)
def test_every_question_is_answered_within_the_limits(
    way: str, engine: Any, questions: list[Question], index: Path
) -> None:
    agent = AgentConfig.model_validate(AGENT.model_dump() | WAYS[way])
    longest = 0
    generate: Callable[..., Any] = engine.generate

    async def measured(token_ids, **settings):
        nonlocal longest
        longest = max(longest, len(token_ids))
        return await generate(token_ids, **settings)

    engine.generate = measured
    try:
        episodes = asyncio.run(
            answer_all(questions, engine, open_retriever(index), agent, temperature=0.0, seed=0, in_flight=16)
        )
    finally:
        engine.generate = generate
    assert [episode.question for episode in episodes] == questions
    assert longest <= agent.max_prompt_tokens + agent.max_response_tokens
    calls, searches = LIMITS[way]
    for episode in episodes:
        assert not episode.stop_reason.is_infrastructure_failure, episode.error
        assert 1 <= episode.llm_calls <= calls and episode.searches <= searches
        assert (episode.answer is not None) == (episode.stop_reason is StopReason.ANSWERED)
        assert all(turn.model_tokens <= agent.max_generation_tokens for turn in episode.turns)
        _check_searches(episode, agent)


def _check_searches(episode: Episode, agent: AgentConfig) -> None:
    """Whatever was searched found passages, and the model was shown them."""
    last = episode.turns[-1]
    for turn in episode.turns:
        assert (turn.action is Action.SEARCH) == bool(turn.sub_queries)
        if turn is last and episode.stop_reason is StopReason.TURN_LIMIT:
            continue  # a search beyond the limit is not made
        for query in turn.sub_queries:
            assert query.text and len(query.hits) <= agent.top_k and query.shown <= len(query.hits)
            assert all(hit.passage.title in turn.observation for hit in query.hits[: query.shown])
