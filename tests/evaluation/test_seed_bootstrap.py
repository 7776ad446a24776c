"""Intervals over seeds and questions, against SciPy's bootstrap, closed formulas and hand computations."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from parallelsearch.evaluation import intervals, seed_bootstrap

RNG = np.random.default_rng(7)


def test_with_one_seed_it_is_the_ordinary_bootstrap_over_questions() -> None:
    values = RNG.normal(size=(1, 400))
    ours, usual = seed_bootstrap.mean(values, samples=4000), intervals.mean(values[0], samples=4000)
    assert ours.value == pytest.approx(usual.value)
    assert (ours.low, ours.high) == pytest.approx((usual.low, usual.high), abs=0.01)


def test_what_is_peculiar_to_a_question_is_not_averaged_away_by_asking_it_three_times() -> None:
    """Three equal seeds: the interval is that of one, which SciPy gives, not narrower by the root of three."""
    one = RNG.normal(size=400)
    usual = intervals.mean(one, samples=4000)
    ours = seed_bootstrap.mean(np.tile(one, (3, 1)), samples=4000)
    assert (ours.low, ours.high) == pytest.approx((usual.low, usual.high), abs=0.01)


def test_seeds_that_differ_widen_the_interval_as_their_variance_says() -> None:
    """Questions alike, seeds 0, 3 and 6: a resample's mean has the variance 6/3 (theirs is 6, with n)."""
    values = np.repeat([[0.0], [3.0], [6.0]], 50, axis=1)
    drawn = seed_bootstrap.resampled_means(values, 20_000)
    assert drawn.mean() == pytest.approx(3, abs=0.05)
    assert drawn.var() == pytest.approx(2, rel=0.05)


def test_a_missing_answer_is_left_out() -> None:
    values = np.array([[1.0, np.nan], [1.0, 1.0]])
    assert np.nanmax(np.abs(seed_bootstrap.resampled_means(values, 200) - 1)) == 0
    assert seed_bootstrap.mean(np.array([[0.0, np.nan], [1.0, 0.5]])).value == pytest.approx(0.5)


def test_a_share_of_one_seed_or_of_equal_outcomes_has_wilsons_interval_over_questions() -> None:
    wilson = stats.binomtest(0, 40).proportion_ci(0.95, method="wilson")
    for seeds in (1, 3):
        found = seed_bootstrap.share(np.zeros((seeds, 40)))
        assert (found.value, found.low, found.high) == pytest.approx((0, wilson.low, wilson.high))


def test_a_ratio_of_proportional_figures_is_sure() -> None:
    theirs = RNG.integers(1, 6, size=(2, 30)).astype(float)
    found = seed_bootstrap.ratio(0.5 * theirs, theirs)
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5), rel=1e-6)


def test_pairs_are_of_the_same_question_and_seed() -> None:
    columns = ["seed", "dataset", "split", "qid", "em"]
    ours = pd.DataFrame([(0, "d", "s", "a", 1.0), (0, "d", "s", "b", 0.0), (1, "d", "s", "a", 1.0)], columns=columns)
    theirs = pd.DataFrame([(1, "d", "s", "a", 0.5), (0, "d", "s", "a", 0.25), (0, "d", "s", "c", 1.0)], columns=columns)
    mine, others = seed_bootstrap.paired(ours, theirs, "em")
    assert mine.tolist() == [[1.0], [1.0]] and others.tolist() == [[0.25], [0.5]]
