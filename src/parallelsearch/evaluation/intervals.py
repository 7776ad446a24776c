"""Intervals: Wilson for proportions, bootstrap for means, Student's t for the means of few runs; all from SciPy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

RESAMPLING_SEED = 20250811
_BYTES_PER_BATCH = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its interval; all three are NaN where there is no observation."""

    value: float
    low: float
    high: float


NOTHING = Estimate(math.nan, math.nan, math.nan)


def resamples_at_once(samples: int, size: int) -> int:
    """How many of `samples` resamples of `size` numbers SciPy may hold in memory together."""
    return max(1, min(samples, _BYTES_PER_BATCH // (8 * size)))


def proportion(outcomes: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Share of true `outcomes` ([n], booleans or 0/1) with Wilson's score interval."""
    values = np.asarray(outcomes, dtype=bool)
    if not values.size:
        return NOTHING
    successes = int(values.sum())
    interval = stats.binomtest(successes, values.size).proportion_ci(confidence, method="wilson")
    return Estimate(successes / values.size, float(interval.low), float(interval.high))


def mean(values: ArrayLike, confidence: float = 0.95, samples: int = 2000) -> Estimate:
    """Mean of `values` ([n]) with the percentile interval of `samples` bootstrap resamples of fixed seed.

    Fewer than two observations give no interval; equal observations give one of width zero.
    """
    data = np.asarray(values, dtype=float)
    if not data.size:
        return NOTHING
    centre = float(data.mean())
    if data.size == 1:
        return Estimate(centre, math.nan, math.nan)
    if np.ptp(data) == 0:
        return Estimate(centre, centre, centre)
    interval = stats.bootstrap(
        (data,),
        np.mean,
        n_resamples=samples,
        batch=resamples_at_once(samples, data.size),
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(RESAMPLING_SEED),
    ).confidence_interval
    return Estimate(centre, float(interval.low), float(interval.high))


def mean_of_few(values: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Mean of a few independent `values` ([n]), such as one for each seed, with Student's t interval (NaN for one)."""
    data = np.asarray(values, dtype=float)
    if not data.size:
        return NOTHING
    if data.size == 1:
        return Estimate(float(data[0]), math.nan, math.nan)
    if np.ptp(data) == 0:
        return Estimate(float(data[0]), float(data[0]), float(data[0]))
    low, high = stats.t.interval(confidence, data.size - 1, loc=data.mean(), scale=stats.sem(data))
    return Estimate(float(data.mean()), float(low), float(high))


def paired_difference(
    treatment: ArrayLike, baseline: ArrayLike, confidence: float = 0.95, samples: int = 2000
) -> Estimate:
    """Mean of `treatment` - `baseline` over the same questions ([n] each, same order), questions resampled in pairs."""
    ours, theirs = np.asarray(treatment, dtype=float), np.asarray(baseline, dtype=float)
    if ours.shape != theirs.shape:
        raise ValueError(f"paired values have the shapes {ours.shape} and {theirs.shape}")
    return mean(ours - theirs, confidence, samples)
