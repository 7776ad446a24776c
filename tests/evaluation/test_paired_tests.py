"""Paired tests by hand, and by simulation under a true and a false null hypothesis."""

from __future__ import annotations

import math

import numpy as np
import pytest

from parallelsearch.evaluation.paired_tests import POWER, holm, mcnemar, minimal_detectable, sign_flip

STUDIES = 2000


def test_mcnemar_by_hand() -> None:
    # 8 questions only ours, 2 only theirs: 2 * (C(10,0) + C(10,1) + C(10,2)) / 2**10, less C(10,2) / 2**10 (mid-p)
    ours = [1] * 8 + [0] * 2 + [1] * 5
    theirs = [0] * 8 + [1] * 2 + [1] * 5
    assert mcnemar(ours, theirs) == mcnemar(theirs, ours) == pytest.approx((2 * (1 + 10 + 45) - 45) / 1024)
    assert mcnemar([1, 0, 1, 0], [0, 1, 1, 0]) == pytest.approx(1.0)  # one each
    assert mcnemar([1, 0], [1, 0]) == 1.0


def test_sign_flips_by_hand() -> None:
    # Differences 1, 2, 3: of eight sign patterns only +++ and --- have a mean as far from zero, none a larger one.
    assert sign_flip([2, 3, 4], [1, 1, 1]) == pytest.approx(2 / 8 / 2)
    # Differences 1, 1, 2, -1: sums of 3 (six patterns) are as far as the one seen, of 5 (two patterns) farther.
    assert sign_flip([2, 2, 3, 1], [1, 1, 1, 2]) == pytest.approx((2 + 6 / 2) / 16)
    assert sign_flip([2, 2], [2, 2]) == 1.0
    assert sign_flip([2], [1]) == 0.5


def test_holm_by_hand() -> None:
    # Sorted .01 .03 .04 times 3, 2, 1 are .03 .06 .04; none may be smaller than the one before.
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.7]) == pytest.approx([1.0, 1.0])
    assert holm([0.02, math.nan, 0.5]) == pytest.approx([0.04, math.nan, 0.5], nan_ok=True)
    assert len(holm([])) == 0


@pytest.mark.slow
@pytest.mark.parametrize("test", [mcnemar, lambda a, b: sign_flip(a, b, samples=300)], ids=["mcnemar", "sign_flip"])
def test_a_true_null_hypothesis_is_rejected_in_one_of_twenty_studies(test) -> None:
    """STUDIES studies of 200 questions; both arms are right with the same probability, which the question decides."""
    rng = np.random.default_rng(11)
    rejected = 0
    for _ in range(STUDIES):
        difficulty = rng.beta(4, 2, size=200)
        rejected += test(rng.random(200) < difficulty, rng.random(200) < difficulty) < 0.05
    assert 0.04 <= rejected / STUDIES <= 0.06


def test_the_detectable_difference_is_found_as_often_as_it_says() -> None:
    """Ours alone is right on 15 of 100 questions, theirs alone on 5: 149 questions find that gain of 0.1."""
    rng = np.random.default_rng(5)
    detectable, found = [], 0
    for _ in range(1000):
        luck = rng.random(149)
        ours, theirs = (luck < 0.15) | (luck > 0.6), (luck >= 0.15) & (luck < 0.20) | (luck > 0.6)
        detectable.append(minimal_detectable(ours, theirs))
        found += mcnemar(ours, theirs) < 0.05
    assert np.mean(detectable) == pytest.approx(0.1, rel=0.02)
    assert found / 1000 == pytest.approx(POWER, abs=0.04)
    assert math.isnan(minimal_detectable([1], [0]))
    assert math.isnan(minimal_detectable([0] * 55, [0] * 55))  # all wrong twice: not a test that would find anything
