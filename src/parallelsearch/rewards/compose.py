"""r = r_o + r_d + r_s + r_f under one of three named semantics."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from parallelsearch.config import RewardConfig
from parallelsearch.records import Episode, Question
from parallelsearch.rewards import bounded, paper, released
from parallelsearch.rewards.components import outcome

_SEMANTICS = {"paper": paper, "released": released, "bounded": bounded}


@dataclass(frozen=True, slots=True)
class RewardBreakdown:
    """The four terms of a reward and their sum."""

    outcome: float
    decomposition: float
    search_count: float
    format: float
    total: float

    def as_dict(self) -> dict[str, float]:
        """The fields in their order, for a JSON line or a table row."""
        return asdict(self)


def score(episode: Episode, question: Question, weights: RewardConfig) -> RewardBreakdown:
    """The reward of `episode` as an attempt at `question`, by weights.semantics."""
    semantics = _SEMANTICS[weights.semantics]
    terms = (
        outcome(episode, question),
        semantics.decomposition(episode, question, weights),
        semantics.search_count(episode, question, weights),
        semantics.format(episode, question, weights),
    )
    return RewardBreakdown(*terms, total=sum(terms))
