"""Hostile texts through the real collector into a real store: stored as text, nothing lost, nothing done."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import real_study
from hostile import COMMANDS, EVERY_TEXT, OWNED, TAGS, TEXTS
from mlflow import MlflowClient

from parallelsearch.errors import DataError
from parallelsearch.evaluation.episodes import read_episodes, read_provenance, write_episodes
from parallelsearch.plan.paths import Results
from parallelsearch.tracking.collect import collect
from parallelsearch.tracking.store import Store


def make_hostile(path: Path, arm: str) -> None:
    """Every text of the episodes: question, answers, what was searched, found, said and shown."""
    text = f"{EVERY_TEXT} {TAGS}"
    rows = []
    for episode, reward in read_episodes(path)[:3]:
        turns = tuple(
            replace(
                turn,
                text=turn.text + text,
                answer=None if turn.answer is None else text,
                observation=turn.observation + text,
                sub_queries=tuple(
                    replace(
                        query,
                        text=text,
                        hits=tuple(
                            replace(hit, passage=replace(hit.passage, title=text, text=text)) for hit in query.hits
                        ),
                    )
                    for query in turn.sub_queries
                ),
            )
            for turn in episode.turns
        )
        question = replace(episode.question, text=text, golden_answers=(text,), type=text[:40])
        rows.append((replace(episode, question=question, turns=turns, answer=text, prompt=text), reward))
    write_episodes(path, rows, arm=arm, seed=0, provenance=read_provenance(path))


def test_traces_of_hostile_episodes_hold_their_texts(results: Results, store: Store, tmp_path: Path) -> None:
    path = results.episodes("parallelsearch", 0, "hotpotqa.dev")
    make_hostile(path, "parallelsearch")
    summary = collect(results.root, real_study.TRACKING)
    assert summary["failed_traces"] == []
    [run] = [run for run in summary["runs"] if run["arm"] == "parallelsearch"]
    assert run["traces"] == 3
    client = MlflowClient(store.uri)
    traces = client.search_traces(locations=[store.experiment_id], run_id=run["run_id"])
    for trace in traces:
        root = trace.data.spans[0]
        for kind, text in TEXTS.items():
            assert text in root.inputs["question"], kind
            assert text in root.outputs["answer"], kind
        assert TAGS in root.inputs["question"]
    assert list(tmp_path.rglob(OWNED)) == []


@pytest.mark.parametrize("name", [value for value in COMMANDS.values() if "/" not in value])
@pytest.mark.parametrize("stage", ["train", "eval"])
def test_a_folder_with_a_hostile_name_is_no_arm(results: Results, store: Store, name: str, stage: str) -> None:
    (results.root / stage / name / "seed0").mkdir(parents=True)
    with pytest.raises(DataError, match=r"is no folder of an arm: its name has other characters"):
        collect(results.root, real_study.TRACKING)
    assert store.client.search_runs([store.experiment_id]) == []
