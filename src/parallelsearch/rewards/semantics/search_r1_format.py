"""Semantics `search_r1_format`: exact match with Search-R1's format reward (arXiv 2505.15117, v0.3 of its code).

With the published weights a right answer is worth 1 in a good format and 0.8 in a bad one, a wrong answer 0.2 and 0.1,
and an episode without an answer nothing. Their third weight, of a retrieved passage that holds the answer, is 0.
"""

from __future__ import annotations

from parallelsearch.config import SearchR1FormatConfig
from parallelsearch.records import Episode, Question
from parallelsearch.rewards.breakdown import RewardBreakdown
from parallelsearch.rewards.components import outcome


def reward(episode: Episode, question: Question, weights: SearchR1FormatConfig) -> RewardBreakdown:
    """The terms outcome, 0 or 1, and format, in [-structure, max(structure, final)]."""
    right = outcome(episode, question)
    if right:
        form = 0.0 if episode.well_formed else -weights.structure
    elif episode.well_formed:
        form = weights.structure
    else:
        form = weights.final if episode.answer is not None else 0.0
    return RewardBreakdown.sum_of({"outcome": right, "format": form})
