"""Semantics `research`: the reward of ReSearch (arXiv 2503.19470): F1, and a little for the format alone.

The paper pays F1 whenever it is above 0, and 0.1 for a good format where it is 0. Its code looks at the format first:
a bad one is worth 0 whatever the answer. This is the code's order, which the published models were trained with.
F1 is 0 when exactly one side is yes, no or noanswer, as in all of this package (answers.f1_score).
"""

from __future__ import annotations

from parallelsearch.answers import f1_score
from parallelsearch.records import Episode, Question
from parallelsearch.rewards.breakdown import RewardBreakdown

FORMAT_ALONE = 0.1


def reward(episode: Episode, question: Question) -> RewardBreakdown:
    """The terms f1, in [0, 1], and format, 0 or 0.1; a good format is Episode.well_formed."""
    if not episode.well_formed:
        return RewardBreakdown.sum_of({"f1": 0.0, "format": 0.0})
    f1 = f1_score(episode.answer, question.golden_answers)
    return RewardBreakdown.sum_of({"f1": f1, "format": 0.0 if f1 else FORMAT_ALONE})
