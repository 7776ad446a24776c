"""The episodes file gives back exactly what was written, and says no word about a policy when the machinery failed."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parallelsearch.agent.transcript import parse_transcript
from parallelsearch.errors import DataError
from parallelsearch.evaluation.episodes import (
    SCHEMA,
    Provenance,
    gold_recall,
    read_episodes,
    read_provenance,
    read_rows,
    write_episodes,
)
from parallelsearch.records import Action, Episode, Hit, Passage, Question, StopReason, Structure, SubQuery, Turn
from parallelsearch.rewards.breakdown import TERMS, RewardBreakdown

ORIGIN = Provenance(
    policy_sha256="a" * 64,
    index_sha256="b" * 64,
    corpus_sha256="c" * 64,
    questions_sha256="d" * 64,
    top_k=3,
    decoding={"temperature": 0.0, "batch_size": 64},
    config={"agent": {"top_k": 3}, "arms": ["x", "y"]},
    corpus="wiki18",
    index="flat",
    versions={"torch": "2.9"},
)

counts = st.integers(0, 2**31 - 1)
seconds = st.floats(0, 1e6)
numbers = st.floats(allow_nan=False, allow_infinity=False, width=64)
texts = st.text(max_size=30)
passages = st.builds(Passage, st.integers(0, 2**40), texts, texts)
sub_queries = st.builds(
    SubQuery, texts, st.lists(st.builds(Hit, passages, numbers), max_size=3).map(tuple), st.integers(0, 3)
)
turns = st.builds(
    Turn,
    text=texts,
    action=st.sampled_from(Action),
    sub_queries=st.lists(sub_queries, max_size=3).map(tuple),
    answer=st.none() | texts,
    observation=texts,
    model_tokens=counts,
    observation_tokens=counts,
    generate_seconds=seconds,
    search_seconds=seconds,
)
questions = st.builds(
    Question,
    qid=texts,
    dataset=texts,
    split=texts,
    text=texts,
    golden_answers=st.lists(texts, max_size=3).map(tuple),
    type=texts,
    structure=st.sampled_from(Structure),
    hops=st.none() | st.integers(0, 9),
    supporting_titles=st.lists(texts, max_size=2).map(tuple),
    supporting_ids=st.lists(st.integers(0, 2**40), max_size=3).map(tuple),
)
# Sums of token counts are columns, too: keep them within 32 bits.
episodes = st.builds(
    Episode,
    question=questions,
    turns=st.lists(turns, max_size=1).map(tuple),
    answer=st.none() | texts,
    stop_reason=st.sampled_from(StopReason),
    well_formed=st.booleans(),
    prompt=texts,
    prompt_tokens=counts,
    seconds=seconds,
    error=texts,
)
rewards = st.none() | st.builds(
    RewardBreakdown,
    terms=st.dictionaries(st.sampled_from(TERMS), numbers),
    total=numbers,
    by_turn=st.lists(numbers, max_size=3).map(tuple),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(scored=st.lists(st.tuples(episodes, rewards), max_size=3))
def test_episodes_come_back_exactly_as_written(tmp_path: Path, scored: list) -> None:
    path = tmp_path / "episodes.parquet"
    write_episodes(path, scored, arm="parallelsearch", seed=3, provenance=ORIGIN)
    assert read_episodes(path) == scored
    assert read_provenance(path) == ORIGIN


def bamboogle_traces(shared_data: Path, policy: str) -> list[dict]:
    with gzip.open(shared_data / "raw" / f"search_r1_traces_bamboogle_{policy}.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


def bamboogle_episode(trace: dict) -> Episode:
    question = Question(
        qid=trace["id"],
        dataset="bamboogle",
        split="test",
        text=trace["question"],
        golden_answers=tuple(trace["golden_answers"]),
        type="all",
        structure=Structure.SEQUENTIAL,
    )
    return parse_transcript(question, trace["output"]["final_response"])


@pytest.mark.parametrize("policy", ["base", "instruct"])
def test_real_search_r1_traces_keep_their_published_scores(tmp_path: Path, shared_data: Path, policy: str) -> None:
    traces = bamboogle_traces(shared_data, policy)
    written = [(bamboogle_episode(trace), None) for trace in traces]
    path = tmp_path / "episodes.parquet"
    write_episodes(path, written, arm="search-r1", seed=0, provenance=ORIGIN)

    assert read_episodes(path) == written
    names = ["qid", "em", "f1", "substring_em", "stop_reason", "llm_calls", "searches", "reward_total"]
    rows = list(read_rows(path, names))
    # The traces carry the scores of another implementation (FlashRAG's em, f1 and acc).
    published = {trace["id"]: trace["output"]["metric_score"] for trace in traces}
    answered = [row for row in rows if row["stop_reason"] == "answered"]
    assert len(answered) > 60
    for row in answered:
        scores = published[row["qid"]]
        assert (row["em"], row["substring_em"]) == (scores["em"], scores["acc"])
        assert row["f1"] == pytest.approx(scores["f1"])
    assert all(row["llm_calls"] - 1 <= row["searches"] <= row["llm_calls"] for row in rows)
    assert all(row["reward_total"] is None for row in rows)


def question(supporting_ids: tuple[int, ...] = (1, 2)) -> Question:
    return Question(
        "q",
        "geoworld",
        "test",
        "Which is larger?",
        ("France",),
        "comparison",
        Structure.PARALLEL,
        2,
        (),
        supporting_ids,
    )


def search(*shown_ids: int, hidden: tuple[int, ...] = ()) -> Turn:
    hits = tuple(Hit(Passage(number, f"t{number}", "text"), 0.5) for number in (*shown_ids, *hidden))
    return Turn("<search>a ## b</search>", Action.SEARCH, (SubQuery("a", hits, len(shown_ids)), SubQuery("b")))


def test_gold_recall_counts_only_passages_that_reached_the_model() -> None:
    def recall(*turns: Turn, wanted: tuple[int, ...] = (1, 2)) -> float | None:
        return gold_recall(Episode(question(wanted), turns, None, StopReason.TURN_LIMIT, False))

    assert recall(search(1, hidden=(2,))) == 0.5
    assert recall(search(1), search(2)) == 1.0
    assert recall(search(1, 7)) == 0.5
    assert recall() == 0.0
    assert recall(search(1), wanted=()) is None
    by_title = replace(question(()), supporting_titles=("t1", "t9"))
    assert gold_recall(Episode(by_title, (search(1, hidden=(9,)),), None, StopReason.TURN_LIMIT, False)) == 0.5


def test_a_row_states_what_can_be_derived_from_the_episode(tmp_path: Path) -> None:
    turn = search(1, 2)
    answer = Turn("<answer>the France</answer>", Action.ANSWER, answer="the France", model_tokens=5)
    episode = Episode(question(), (turn, answer), "the France", StopReason.ANSWERED, True, seconds=2.5)
    path = tmp_path / "episodes.parquet"
    write_episodes(path, [(episode, None)], arm="a", seed=4, provenance=ORIGIN)
    (row,) = read_rows(path)
    assert set(row) == set(SCHEMA.names)
    found = {name: row[name] for name in ("arm", "seed", "em", "f1", "decomposed", "llm_calls", "searches")}
    assert found == {"arm": "a", "seed": 4, "em": 1.0, "f1": 1.0, "decomposed": True, "llm_calls": 2, "searches": 1}
    assert (row["sub_queries"], row["model_tokens"], row["gold_recall"], row["seconds"]) == (2, 5, 1.0, 2.5)


@pytest.mark.parametrize("reason", [StopReason.RETRIEVER_ERROR, StopReason.ENGINE_ERROR])
def test_an_infrastructure_failure_has_no_score(tmp_path: Path, reason: StopReason) -> None:
    path = tmp_path / "episodes.parquet"
    episode = Episode(question(), (search(1),), "France", reason, False, error="no reply")
    write_episodes(path, [(episode, None)], arm="a", seed=0, provenance=ORIGIN)
    (row,) = read_rows(path)
    assert (row["em"], row["f1"], row["gold_recall"]) == (None, None, None)
    assert row["error"] == "no reply"


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "episodes.parquet"
    with pytest.raises(DataError, match=r"episodes\.parquet is missing"):
        read_episodes(path)
    write_episodes(path, [], arm="a", seed=0, provenance=ORIGIN)
    assert read_episodes(path) == []
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match=r"episodes\.parquet is not a whole parquet file"):
        read_episodes(path)
    pq.write_table(pa.table({"arm": ["a"], "seed": [0]}), path)
    with pytest.raises(DataError, match="lacks the columns qid, dataset"):
        read_episodes(path)
    pq.write_table(SCHEMA.empty_table(), path)
    with pytest.raises(DataError, match="has no provenance"):
        read_provenance(path)


def test_nothing_half_written_stays_behind(tmp_path: Path) -> None:
    def interrupted():
        yield Episode(question(), (), None, StopReason.TURN_LIMIT, False), None
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_episodes(tmp_path / "episodes.parquet", interrupted(), arm="a", seed=0, provenance=ORIGIN)
    assert list(tmp_path.iterdir()) == []
