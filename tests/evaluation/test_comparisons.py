"""Arms against the baseline, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from parallelsearch.evaluation.comparisons import COLUMNS, compare
from parallelsearch.evaluation.metrics import load


def test_the_comparison_pairs_questions_and_leaves_failures_out(files: list[Path]) -> None:
    (row,) = compare(load(files), "search-r1").to_dict("records")
    assert (row["arm"], row["structure"], row["pairs"]) == ("parallelsearch", "parallel", 3)
    assert row["em_difference"] == pytest.approx(1 / 3)
    assert row["decomposition_ratio_difference"] == pytest.approx(2 / 3)
    assert row["turns_difference"] == pytest.approx(-2 / 3)
    assert row["turns_difference_low"] <= row["turns_difference"] <= row["turns_difference_high"]
    assert row["em_p"] == pytest.approx(
        0.5
    )  # one question differs: P(0 of 1) twice, less the probability of what was seen
    # Turns differ by -1, -1, 0: of eight sign patterns the four with equal signs of the first two are as far out.
    assert row["turns_p"] == pytest.approx(4 / 8 / 2)
    assert row["em_p_holm"] == row["em_p"]  # a family of one


def test_an_unknown_baseline_gives_an_empty_table_with_all_columns(files: list[Path]) -> None:
    table = compare(load(files), "no-such-arm")
    assert table.empty
    assert list(table.columns) == COLUMNS
