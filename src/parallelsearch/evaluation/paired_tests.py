"""Tests of two arms on the same questions, their correction for many comparisons, and what they could have found."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from parallelsearch.evaluation.intervals import RESAMPLING_SEED, resamples_at_once

POWER = 0.8


def mcnemar(treatment: ArrayLike, baseline: ArrayLike) -> float:
    """Two-sided mid-p McNemar p-value of two right/wrong outcomes of the same questions ([n] each).

    The exact test rejects a true null too rarely where few questions differ; the mid-p value does not (Fagerland,
    Lydersen and Laake 2013).
    """
    ours, theirs = np.asarray(treatment, dtype=bool), np.asarray(baseline, dtype=bool)
    only_ours, only_theirs = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
    rarer, differ = min(only_ours, only_theirs), only_ours + only_theirs
    return float(min(1.0, 2 * stats.binom.cdf(rarer, differ, 0.5) - stats.binom.pmf(rarer, differ, 0.5)))


def sign_flip(treatment: ArrayLike, baseline: ArrayLike, samples: int = 2000) -> float:
    """Two-sided mid-p value of a mean paired difference ([n] each): the signs of the differences are redrawn.

    1 where no pair differs. Means as far from zero as the one seen count half, since whole numbers such as turns make
    many of them. The seed is fixed.
    """
    differences = np.asarray(treatment, dtype=float) - np.asarray(baseline, dtype=float)
    if not differences.any():
        return 1.0
    if differences.size == 1:
        return 0.5  # either sign is as far from zero as the other
    test = stats.permutation_test(
        (differences,),
        np.mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=samples,
        batch=resamples_at_once(samples, differences.size),
        rng=np.random.default_rng(RESAMPLING_SEED),
    )
    seen, drawn = abs(test.statistic), np.abs(test.null_distribution)
    as_far = np.isclose(drawn, seen, rtol=1e-9, atol=0)
    return float(np.mean((drawn > seen) & ~as_far) + np.mean(as_far) / 2)


def holm(p_values: ArrayLike) -> np.ndarray:
    """Holm's (1979) step-down adjustment of a family of p-values, [n]; NaN stays NaN and counts for nothing."""
    values = np.asarray(p_values, dtype=float)
    adjusted = np.full(values.shape, math.nan)
    order = [place for place in np.argsort(values, kind="stable") if not math.isnan(values[place])]
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * values[place]))
        adjusted[place] = largest
    return adjusted


def minimal_detectable(treatment: ArrayLike, baseline: ArrayLike, confidence: float = 0.95) -> float:
    """The true mean difference that a paired test at level 1 - `confidence` would find with a probability of POWER.

    From the standard deviation of the differences ([n] each), by the normal approximation. NaN for fewer than two, and
    where all differences are equal: nothing scatters then, which says nothing about what would be found.
    """
    differences = np.asarray(treatment, dtype=float) - np.asarray(baseline, dtype=float)
    if differences.size < 2 or np.ptp(differences) == 0:
        return math.nan
    standard_error = differences.std(ddof=1) / math.sqrt(differences.size)
    return float((stats.norm.ppf((1 + confidence) / 2) + stats.norm.ppf(POWER)) * standard_error)
