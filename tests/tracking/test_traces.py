"""Traces say what happened in an episode, when, and to which run it belongs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mlflow.entities import Trace
from real_study import TRACKING as SETTINGS

from parallelsearch.config import TrackingConfig
from parallelsearch.evaluation.episodes import (
    episode_of,
    read_episodes,
    read_provenance,
    read_rows,
    write_episodes,
)
from parallelsearch.plan.paths import Results
from parallelsearch.records import Episode
from parallelsearch.tracking import traces as tracing
from parallelsearch.tracking.collect import collect
from parallelsearch.tracking.results import find
from parallelsearch.tracking.store import Store


def traces_by_question(store: Store, run_id: str) -> dict[str, Trace]:
    found = store.client.search_traces(locations=[store.experiment_id], run_id=run_id, include_spans=True)
    return {trace.info.tags["qid"]: trace for trace in found}


def run_of(summary: dict[str, Any], arm: str) -> str:
    return next(run["run_id"] for run in summary["runs"] if run["arm"] == arm)


def episodes_of(results: Results, arm: str) -> dict[str, Episode]:
    rows = read_rows(results.episodes(arm, 0, "hotpotqa.dev"))
    return {row["qid"]: episode_of(row) for row in rows}


def test_spans_rebuild_every_turn_with_its_times(results: Results, store: Store) -> None:
    run_id = run_of(collect(results.root, SETTINGS), "parallelsearch")
    episodes, traces = episodes_of(results, "parallelsearch"), traces_by_question(store, run_id)
    assert len(traces) == 3
    for qid, trace in traces.items():
        episode = episodes[qid]
        root, *spans = sorted(trace.data.spans, key=lambda span: (span.parent_id is not None, span.start_time_ns))
        assert root.name == "episode"
        assert root.inputs["question"] == episode.question.text
        assert root.outputs["answer"] == episode.answer
        assert (root.end_time_ns - root.start_time_ns) / 1e9 == pytest.approx(episode.seconds, abs=1e-6)
        clock = root.start_time_ns
        for number, turn in enumerate(episode.turns, 1):
            generation = next(span for span in spans if span.name == f"generation {number}")
            assert generation.parent_id == root.span_id
            assert (generation.start_time_ns, generation.outputs["text"]) == (clock, turn.text)
            assert (generation.end_time_ns - clock) / 1e9 == pytest.approx(turn.generate_seconds, abs=1e-6)
            clock = generation.end_time_ns
            if turn.sub_queries:
                search = next(span for span in spans if span.name == f"search {number}")
                queries = [span for span in spans if span.parent_id == search.span_id]
                assert sorted(span.inputs["query"] for span in queries) == sorted(q.text for q in turn.sub_queries)
                assert search.outputs["observation"] == turn.observation
                for span in (search, *queries):
                    assert span.start_time_ns == clock
                    assert (span.end_time_ns - clock) / 1e9 == pytest.approx(turn.search_seconds, abs=1e-6)
                titles = {doc["metadata"]["title"] for span in queries for doc in span.outputs}
                assert titles == {hit.passage.title for q in turn.sub_queries for hit in q.hits}
                clock = search.end_time_ns
        assert len(spans) == len(episode.turns) + episode.searches + sum(len(t.sub_queries) for t in episode.turns)


def test_traces_belong_to_their_own_run(results: Results, store: Store) -> None:
    summary = collect(results.root, SETTINGS)
    for run in summary["runs"]:
        traces = traces_by_question(store, run["run_id"]).values()
        assert {trace.info.tags["arm"] for trace in traces} == {run["arm"]}
        assert {trace.info.trace_metadata["mlflow.sourceRun"] for trace in traces} == {run["run_id"]}


def test_structures_take_turns(results: Results) -> None:
    (record,) = [record for record in find(results.root) if record.arm == "parallelsearch"]
    rows = tracing.chosen_rows(record, 4)
    assert [row["structure"] for row in rows] == ["parallel", "sequential", "parallel", "sequential"]
    assert tracing.chosen_rows(record, 0) == []
    assert len(tracing.chosen_rows(record, 1000)) == 47


def test_a_failed_episode_is_a_trace_in_error(results: Results, store: Store) -> None:
    settings = TrackingConfig(experiment="parallelsearch", uri=None, traces_per_run=1000)
    for arm in ("warm-start", "search-r1", "parallelsearch", "no-decomposition-reward"):
        results.episodes(arm, 0, "hotpotqa.dev").unlink()
    run_id = run_of(collect(results.root, settings), "no-search-count-reward")
    traces = traces_by_question(store, run_id)
    assert len(traces) == 47
    failed = [trace for trace in traces.values() if trace.info.tags["stop_reason"] == "retriever_error"]
    assert [trace.info.state.value for trace in failed] == ["ERROR"]
    assert "em" not in failed[0].info.tags
    assert {trace.info.state.value for trace in traces.values()} == {"OK", "ERROR"}


def test_another_number_of_traces_replaces_the_old_ones(results: Results, store: Store) -> None:
    collect(results.root, SETTINGS)
    fewer = SETTINGS.model_copy(update={"traces_per_run": 1})
    summary = collect(results.root, fewer)
    assert {run["traces"] for run in summary["runs"]} == {1}
    assert {run["action"] for run in summary["runs"]} == {"unchanged"}


def test_a_trace_that_cannot_be_written_stops_nothing(
    results: Results, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tracing.write_trace

    def broken(store: Store, run_id: str, row: dict[str, Any], start: int) -> str:
        if row["arm"] == "search-r1":
            raise OSError("disk full")
        return real(store, run_id, row, start)

    monkeypatch.setattr(tracing, "write_trace", broken)
    summary = collect(results.root, SETTINGS)
    assert len(summary["failed_traces"]) == 3
    assert all("search-r1/seed0" in failure and "disk full" in failure for failure in summary["failed_traces"])
    assert {run["arm"]: run["traces"] for run in summary["runs"]}["parallelsearch"] == 3
    monkeypatch.undo()
    again = collect(results.root, SETTINGS)
    assert again["failed_traces"] == []
    assert {run["traces"] for run in again["runs"]} == {3}


def test_a_search_that_the_model_did_not_ask_for_has_no_generation(results: Results, store: Store) -> None:
    source = results.episodes("search-r1", 0, "hotpotqa.dev")
    episode, reward = next(pair for pair in read_episodes(source) if len(pair[0].turns) == 3)
    first, *rest = episode.turns
    by_itself = replace(first, text="", model_tokens=0, generate_seconds=0.0)
    target = results.episodes("rag", 0, "hotpotqa.dev")
    changed = [(replace(episode, turns=(by_itself, *rest)), reward)]
    write_episodes(target, changed, arm="rag", seed=0, provenance=read_provenance(source))
    summary = collect(results.root, SETTINGS)
    assert summary["failed_traces"] == []
    (trace,) = traces_by_question(store, run_of(summary, "rag")).values()
    names = [span.name for span in trace.data.spans if not span.name.startswith("sub-query")]
    assert sorted(names) == ["episode", "generation 2", "generation 3", "search 1", "search 2"]
