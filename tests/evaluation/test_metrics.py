"""Figures by group against hand computations, on episodes that went through the file."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from parallelsearch.errors import DataError
from parallelsearch.evaluation.episodes import Provenance, write_episodes
from parallelsearch.evaluation.metrics import arm_order, compare, in_order, load, over_seeds, summarise
from parallelsearch.records import Action, Episode, Question, StopReason, Structure, SubQuery, Turn

ORIGIN = Provenance("a", "b", "c", "d", top_k=2)
PARALLEL = Turn("<search>x ## y</search>", Action.SEARCH, (SubQuery("x"), SubQuery("y")), search_seconds=0.5)
REPEATED = Turn("<search>x ## X </search>", Action.SEARCH, (SubQuery("x"), SubQuery("X ")), search_seconds=0.5)
SINGLE = Turn("<search>x</search>", Action.SEARCH, (SubQuery("x"),), search_seconds=0.5)
ANSWER = Turn("<answer>z</answer>", Action.ANSWER, answer="z")


def episode(
    qid: str,
    turns: tuple[Turn, ...],
    answer: str | None,
    structure: Structure = Structure.PARALLEL,
    stop: StopReason = StopReason.ANSWERED,
    seconds: float = 1.0,
) -> Episode:
    question = Question(qid, "geoworld", "test", "?", ("z",), "comparison", structure)
    return Episode(question, turns, answer, stop, answer is not None, seconds=seconds)


def write(tmp_path: Path, arm: str, seed: int, episodes: list[Episode]) -> Path:
    path = tmp_path / arm / f"seed{seed}" / "episodes.parquet"
    write_episodes(path, [(entry, None) for entry in episodes], arm=arm, seed=seed, provenance=ORIGIN)
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    ours = [
        episode("1", (PARALLEL, ANSWER), "z", seconds=1),
        episode("2", (PARALLEL, ANSWER), "z", seconds=3),
        episode("3", (REPEATED, ANSWER), "w", seconds=2),
        episode("4", (), None, stop=StopReason.RETRIEVER_ERROR, seconds=90),
        episode("5", (SINGLE, SINGLE), None, Structure.SEQUENTIAL, StopReason.TURN_LIMIT),
    ]
    theirs = [
        episode("1", (SINGLE, SINGLE, ANSWER), "z"),
        episode("2", (SINGLE, SINGLE, ANSWER), "w"),
        episode("3", (SINGLE, ANSWER), "w"),
        episode("4", (SINGLE, SINGLE, ANSWER), "z"),
    ]
    return [write(tmp_path, "parallelsearch", 0, ours), write(tmp_path, "search-r1", 0, theirs)]


def test_figures_of_a_group_by_hand(files: list[Path]) -> None:
    table = summarise(load(files)).set_index(["arm", "structure"])
    row = table.loc["parallelsearch", "parallel"]
    assert (row["n"], row["failures"]) == (3, 1)
    assert row["em"] == pytest.approx(2 / 3)
    assert row["decomposition_ratio"] == pytest.approx(2 / 3)  # the repeated sub-query is no decomposition
    assert (row["turns"], row["llm_calls"], row["searches"], row["sub_queries"]) == (2, 2, 1, 2)
    assert (row["seconds"], row["search_seconds"]) == (2, 0.5)
    assert (row["answered"], row["well_formed"]) == (1, 1)
    assert math.isnan(row["gold_recall"])
    assert row["em_low"] < row["em"] < row["em_high"]
    unanswered = table.loc["parallelsearch", "sequential"]
    assert (unanswered["em"], unanswered["answered"], unanswered["turns"]) == (0, 0, 2)


def test_a_group_of_failures_only_has_no_figures(tmp_path: Path) -> None:
    path = write(tmp_path, "a", 0, [episode("1", (), None, stop=StopReason.ENGINE_ERROR)])
    (row,) = summarise(load([path])).to_dict("records")
    assert (row["n"], row["failures"]) == (0, 1)
    assert math.isnan(row["em"])
    assert math.isnan(row["turns"])


def test_the_comparison_pairs_questions_and_leaves_failures_out(files: list[Path]) -> None:
    (row,) = compare(load(files), "search-r1").to_dict("records")
    assert (row["arm"], row["structure"], row["pairs"]) == ("parallelsearch", "parallel", 3)
    assert row["em_difference"] == pytest.approx(1 / 3)
    assert row["decomposition_ratio_difference"] == pytest.approx(2 / 3)
    assert row["turns_difference"] == pytest.approx(-2 / 3)
    assert row["turns_difference_low"] <= row["turns_difference"] <= row["turns_difference_high"]
    assert row["em_p"] == 1.0  # one question differs: either outcome is as likely
    assert compare(load(files), "no-such-arm").empty


def test_seeds_are_averaged_with_their_spread(tmp_path: Path) -> None:
    right = [episode("1", (PARALLEL, ANSWER), "z"), episode("2", (PARALLEL, ANSWER), "z")]
    half = [episode("1", (PARALLEL, ANSWER), "z"), episode("2", (SINGLE, ANSWER), "w")]
    files = [write(tmp_path, "a", seed, episodes) for seed, episodes in enumerate([right, half])]
    (row,) = over_seeds(summarise(load(files))).to_dict("records")
    assert (row["seeds"], row["n"], row["em"]) == (2, 4, 0.75)
    assert row["em_sd"] == pytest.approx(math.sqrt(((1 - 0.75) ** 2 + (0.5 - 0.75) ** 2) / 1))
    (alone,) = over_seeds(summarise(load(files[:1]))).to_dict("records")
    assert math.isnan(alone["em_sd"])


def test_the_same_file_twice_is_refused(files: list[Path]) -> None:
    with pytest.raises(DataError, match=r"question 1 of geoworld\.test stands twice for arm parallelsearch, seed 0"):
        load([*files, files[0]])
    with pytest.raises(DataError, match="no episode in an empty list"):
        load([])


def test_arms_and_structures_have_one_order() -> None:
    assert arm_order({"b", "search-r1", "warm-start", "a"}, ["search-r1", "absent"]) == [
        "warm-start",
        "search-r1",
        "a",
        "b",
    ]
    rows = [("b", 1, "single"), ("b", 0, "sequential"), ("warm-start", 0, "mixed"), ("b", 0, "parallel")]
    table = in_order(pd.DataFrame(rows, columns=["arm", "seed", "structure"]))
    assert [tuple(row) for row in table.to_numpy()] == [
        ("warm-start", 0, "mixed"),
        ("b", 0, "parallel"),
        ("b", 0, "sequential"),
        ("b", 1, "single"),
    ]
