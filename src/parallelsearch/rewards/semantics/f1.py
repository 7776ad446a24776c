"""Semantics `f1`: token F1 of the answer and nothing else, the reward of ZeroSearch (arXiv 2505.04588).

Their prompt asks for the format; their reward does not look at it.
"""

from __future__ import annotations

from parallelsearch.answers import f1_score
from parallelsearch.records import Episode, Question
from parallelsearch.rewards.breakdown import RewardBreakdown


def reward(episode: Episode, question: Question) -> RewardBreakdown:
    """The term f1, in [0, 1]."""
    return RewardBreakdown.sum_of({"f1": f1_score(episode.answer, question.golden_answers)})
