"""The reward of an episode under the semantics that its weights name."""

from __future__ import annotations

from collections.abc import Sequence

from parallelsearch.config import RewardConfig
from parallelsearch.records import Episode, Question
from parallelsearch.rewards.breakdown import RewardBreakdown
from parallelsearch.rewards.components import outcome
from parallelsearch.rewards.extra import TERM
from parallelsearch.rewards.semantics import bounded, f1, otc, paper, released, research, search_r1_format, stepsearch

_FOUR_TERMS = {"paper": paper, "released": released, "bounded": bounded}


def score(
    episode: Episode,
    question: Question,
    weights: RewardConfig,
    *,
    gold: Sequence[str] = (),
    group: Sequence[Episode] = (),
) -> RewardBreakdown:
    """The reward of `episode` as an attempt at `question`, by weights.semantics, with the terms of weights.extra.

    `gold` are the texts of the question's gold paragraphs (semantics stepsearch reads them), `group` the prompt's other
    rollouts (semantics otc with otc.group compares with them).
    """
    own = _of_semantics(episode, question, weights, gold, group)
    return own.with_extra({name: weight * TERM[name](episode, question) for name, weight in weights.extra.items()})


def _of_semantics(
    episode: Episode, question: Question, weights: RewardConfig, gold: Sequence[str], group: Sequence[Episode]
) -> RewardBreakdown:
    match weights.semantics:
        case "search_r1_format":
            return search_r1_format.reward(episode, question, weights.search_r1_format)
        case "f1":
            return f1.reward(episode, question)
        case "research":
            return research.reward(episode, question)
        case "otc":
            return otc.reward(episode, question, weights.otc, group)
        case "stepsearch":
            return stepsearch.reward(episode, question, weights.stepsearch, gold)
    semantics = _FOUR_TERMS[weights.semantics]
    return RewardBreakdown.sum_of(
        {
            "outcome": outcome(episode, question),
            "decomposition": semantics.decomposition(episode, question, weights),
            "search_count": semantics.search_count(episode, question, weights),
            "format": semantics.format(episode, question, weights),
        }
    )
