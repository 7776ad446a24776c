"""Figures by group against hand computations, on episodes that went through the file."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from by_hand import ANSWER, PARALLEL, SINGLE, episode, write

from parallelsearch.errors import DataError
from parallelsearch.evaluation.metrics import arm_order, in_order, load, over_seeds, summarise
from parallelsearch.records import StopReason, Structure


def test_figures_of_a_group_by_hand(files: list[Path]) -> None:
    table = summarise(load(files)).set_index(["arm", "structure"])
    row = table.loc["parallelsearch", "parallel"]
    assert (row["n"], row["failures"]) == (3, 1)
    assert row["em"] == pytest.approx(2 / 3)
    assert row["decomposition_ratio"] == pytest.approx(2 / 3)  # the repeated sub-query is no decomposition
    assert (row["turns"], row["llm_calls"], row["searches"], row["sub_queries"]) == (2, 2, 1, 2)
    assert row["sub_queries_per_search"] == 2
    assert row["first_search_decomposition_ratio"] == pytest.approx(2 / 3)
    assert row["substring_em"] == pytest.approx(2 / 3)
    assert row["answered_without_search"] == 0
    assert (row["seconds"], row["search_seconds"]) == (2, 0.5)
    assert (row["answered"], row["well_formed"]) == (1, 1)
    assert math.isnan(row["gold_recall"])
    assert row["em_low"] < row["em"] < row["em_high"]
    unanswered = table.loc["parallelsearch", "sequential"]
    assert (unanswered["em"], unanswered["answered"], unanswered["turns"]) == (0, 0, 2)


def test_a_late_decomposition_an_unsearched_answer_and_a_wordy_one(tmp_path: Path) -> None:
    late = episode("1", (SINGLE, PARALLEL, ANSWER), "it is z, probably")
    path = write(tmp_path, "a", 0, [late, episode("2", (ANSWER,), "z")])
    (row,) = summarise(load([path])).to_dict("records")
    assert (row["decomposition_ratio"], row["first_search_decomposition_ratio"]) == (0.5, 0)
    assert (row["em"], row["substring_em"], row["answered_without_search"]) == (0.5, 1, 0.5)
    assert row["sub_queries_per_search"] == 1.5


def test_over_and_under_decomposition_by_hand(tmp_path: Path) -> None:
    entries = [
        episode("1", (PARALLEL, ANSWER), "z", Structure.SEQUENTIAL),  # split what cannot be split, and too few searches
        episode("2", (SINGLE, SINGLE, ANSWER), "z", Structure.SEQUENTIAL),
        episode("3", (SINGLE, SINGLE, ANSWER), "z", Structure.PARALLEL),
        episode("4", (PARALLEL, ANSWER), "z", Structure.PARALLEL),
        episode("5", (SINGLE, ANSWER), "z", Structure.SINGLE),
    ]
    table = summarise(load([write(tmp_path, "a", 0, entries)])).set_index("structure")
    assert (table.loc["sequential", "over_decomposition"], table.loc["sequential", "under_decomposition"]) == (0.5, 0.5)
    assert table.loc["parallel", "under_decomposition"] == 0.5 and math.isnan(
        table.loc["parallel", "over_decomposition"]
    )
    assert table.loc["single", "over_decomposition"] == 0 and math.isnan(table.loc["single", "under_decomposition"])


def test_the_critical_path_pays_for_a_search_turn_once(tmp_path: Path) -> None:
    """4 s of generation for 8 tokens: 0.5 s each. 1.5 s of search for 3 sub-queries: 0.5 s each."""
    search = replace(PARALLEL, model_tokens=3, generate_seconds=1.0, search_seconds=1.2)
    answer = replace(ANSWER, model_tokens=1, generate_seconds=1.0)
    alone = replace(SINGLE, model_tokens=3, generate_seconds=1.0, search_seconds=0.3)
    failed = episode("3", (search,), None, stop=StopReason.RETRIEVER_ERROR)  # sets no price
    path = write(tmp_path, "a", 0, [episode("1", (search, answer), "z"), episode("2", (alone, answer), "z"), failed])
    rows = load([path]).set_index("qid")
    assert list(rows["critical_path_seconds"]) == pytest.approx([4 * 0.5 + 0.5, 4 * 0.5 + 0.5, 3 * 0.5 + 0.5])
    assert list(rows["one_by_one_seconds"]) == pytest.approx([4 * 0.5 + 1.0, 4 * 0.5 + 0.5, 3 * 0.5 + 1.0])


def test_a_group_of_failures_only_has_no_figures(tmp_path: Path) -> None:
    path = write(tmp_path, "a", 0, [episode("1", (), None, stop=StopReason.ENGINE_ERROR)])
    (row,) = summarise(load([path])).to_dict("records")
    assert (row["n"], row["failures"]) == (0, 1)
    assert math.isnan(row["em"])
    assert math.isnan(row["turns"])


def test_seeds_are_averaged_with_their_spread(tmp_path: Path) -> None:
    right = [episode("1", (PARALLEL, ANSWER), "z"), episode("2", (PARALLEL, ANSWER), "z")]
    half = [episode("1", (PARALLEL, ANSWER), "z"), episode("2", (SINGLE, ANSWER), "w")]
    files = [write(tmp_path, "a", seed, episodes) for seed, episodes in enumerate([right, half])]
    (row,) = over_seeds(summarise(load(files))).to_dict("records")
    assert (row["seeds"], row["n"], row["em"]) == (2, 4, 0.75)
    assert row["em_sd"] == pytest.approx(math.sqrt(((1 - 0.75) ** 2 + (0.5 - 0.75) ** 2) / 1))
    # Student's t with one degree of freedom: 12.7062 at 97.5%, times sd / sqrt(2)
    assert row["em_high"] - row["em"] == pytest.approx(12.7062 * row["em_sd"] / math.sqrt(2), rel=1e-5)
    (alone,) = over_seeds(summarise(load(files[:1]))).to_dict("records")
    assert math.isnan(alone["em_sd"])
    assert math.isnan(alone["em_low"])


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
