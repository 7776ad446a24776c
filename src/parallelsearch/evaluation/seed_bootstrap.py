"""Intervals of means over seeds and questions: both are resampled, for both could have been others.

Every seed of an arm answers the same questions. A resample therefore draws seeds with replacement, draws questions with
replacement, and takes every drawn seed's value of every drawn question (the pigeonhole bootstrap, Owen 2007): what is
peculiar to a question is not averaged away by asking it of three policies. With one seed it is the ordinary bootstrap
over questions. Few seeds say little about further ones: two or three give intervals that are somewhat too narrow.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import pandas as pd

from parallelsearch.evaluation.intervals import NOTHING, RESAMPLING_SEED, Estimate, proportion

QUESTION = ["dataset", "split", "qid"]


def matrix(episodes: pd.DataFrame, column: str) -> np.ndarray:
    """[seeds, questions] of one arm's figure; NaN where an episode is missing."""
    return episodes.pivot(index="seed", columns=QUESTION, values=column).to_numpy(dtype=float)


def resampled_means(values: np.ndarray, samples: int) -> np.ndarray:
    """[samples] means of resamples of `values` ([seeds, questions], NaN: missing); equal shapes draw the same cells."""
    by_seed, by_question = _draws(*values.shape, samples)
    known = ~np.isnan(values).T
    totals = (by_seed * (by_question @ np.where(known, values.T, 0).astype(np.float32))).sum(axis=1)
    with np.errstate(invalid="ignore"):
        return totals / (by_seed * (by_question @ known.astype(np.float32))).sum(axis=1)


def mean(values: np.ndarray, confidence: float = 0.95, samples: int = 2000) -> Estimate:
    """Mean of `values` ([seeds, questions]) with its percentile interval; equal values give one of width zero, and
    a single value none."""
    known = values[~np.isnan(values)]
    if not known.size:
        return NOTHING
    if known.size == 1:
        return Estimate(float(known[0]), math.nan, math.nan)
    return _between(float(known.mean()), resampled_means(values, samples), confidence)


def share(values: np.ndarray, confidence: float = 0.95, samples: int = 2000) -> Estimate:
    """As `mean`, of outcomes 0 and 1; Wilson's over questions for one seed, and where all outcomes are equal."""
    known = values[~np.isnan(values)]
    if known.size and (len(values) == 1 or np.ptp(known) == 0):
        return proportion(known[: values.shape[1]], confidence)
    return mean(values, confidence, samples)


def ratio(ours: np.ndarray, theirs: np.ndarray, confidence: float = 0.95, samples: int = 2000) -> Estimate:
    """Mean of `ours` over the mean of `theirs`, cell by cell of the same seeds and questions, resampled in pairs."""
    drawn = resampled_means(ours, samples) / resampled_means(theirs, samples)
    return _between(float(np.nanmean(ours) / np.nanmean(theirs)), drawn, confidence)


def paired(ours: pd.DataFrame, theirs: pd.DataFrame, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Two arms' matrices of a figure over the questions and seeds that both answered."""
    both = ours.merge(theirs, on=["seed", *QUESTION], suffixes=("", "_theirs"))
    return matrix(both, column), matrix(both, f"{column}_theirs")


def _between(value: float, drawn: np.ndarray, confidence: float) -> Estimate:
    low, high = np.nanquantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(value, float(low), float(high))


@lru_cache(maxsize=8)
def _draws(seeds: int, questions: int, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """How often each resample has each seed ([samples, seeds]) and each question ([samples, questions])."""
    rng = np.random.default_rng(RESAMPLING_SEED)
    by_seed = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=samples).astype(np.float64)
    by_question = rng.multinomial(questions, np.full(questions, 1 / questions), size=samples).astype(np.float32)
    return by_seed, by_question
