"""Intervals against hand computations and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from parallelsearch.evaluation.intervals import mean, paired_difference, proportion


def wilson(successes: int, n: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """Wilson (1927), written out."""
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return centre - half, centre + half


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (3, 10), (10, 10), (1207, 1280), (51, 124)])
def test_a_proportion_has_wilsons_interval(successes: int, n: int) -> None:
    estimate = proportion([True] * successes + [False] * (n - successes))
    low, high = wilson(successes, n)
    assert estimate.value == successes / n
    assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=1e-12)


def test_the_published_decomposition_ratio_of_1207_in_1280_is_94_30_percent() -> None:
    assert round(100 * proportion([1] * 1207 + [0] * 73).value, 2) == 94.30


def test_a_bootstrap_interval_of_many_values_is_close_to_the_normal_one() -> None:
    values = np.random.default_rng(1).exponential(2.0, size=2000)
    estimate = mean(values, samples=4000)
    half = 1.96 * values.std(ddof=1) / math.sqrt(len(values))
    assert estimate.value == pytest.approx(values.mean())
    assert (estimate.low, estimate.high) == pytest.approx((values.mean() - half, values.mean() + half), rel=0.01)
    assert mean(values, samples=4000) == estimate


def test_a_higher_confidence_gives_a_wider_interval() -> None:
    values = [1, 2, 2, 3, 5, 4, 2, 3]
    narrow, wide = mean(values, 0.8), mean(values, 0.99)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_few_or_equal_observations() -> None:
    assert all(math.isnan(part) for part in (mean([]).value, mean([]).low, proportion([]).value))
    assert mean([2.0]).value == 2.0
    assert math.isnan(mean([2.0]).low)
    assert (mean([3, 3, 3]).low, mean([3, 3, 3]).high) == (3, 3)


def test_pairing_removes_what_the_questions_share() -> None:
    difficulty = np.random.default_rng(0).normal(0, 10, size=200)
    estimate = paired_difference(difficulty + 1, difficulty)
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((1, 1, 1))
    with pytest.raises(ValueError, match="shapes"):
        paired_difference([1, 2], [1])


@pytest.mark.slow
def test_intervals_cover_the_true_value_as_often_as_they_say() -> None:
    """1,000 studies of 250 questions: EM with Wilson's interval, turns (2 to 5) with the bootstrap's."""
    rng = np.random.default_rng(7)
    shares = np.array([0.35, 0.4, 0.15, 0.1])
    true_turns = float(np.arange(2, 6) @ shares)
    covered = {"em": 0, "turns": 0}
    for _ in range(1000):
        em = proportion(rng.random(250) < 0.7)
        covered["em"] += em.low <= 0.7 <= em.high
        turns = mean(rng.choice(np.arange(2, 6), size=250, p=shares), samples=1000)
        covered["turns"] += turns.low <= true_turns <= turns.high
    assert all(930 <= count <= 970 for count in covered.values()), covered
