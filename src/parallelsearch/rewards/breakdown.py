"""A reward taken apart: its named terms, its total, and what of it was earned by single turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import get_args

from parallelsearch.config import EXTRA_TERMS

# The terms of all semantics, each of which has some of them (see its module), then those that any can be given.
EXTRA: tuple[str, ...] = get_args(EXTRA_TERMS)
TERMS = ("outcome", "decomposition", "search_count", "format", "f1", "tool", "key", "steps", *EXTRA)


@dataclass(frozen=True, slots=True)
class RewardBreakdown:
    """The terms of a reward by their names in TERMS, and the total: their sum, where the semantics says no other.

    `by_turn` has one entry for each turn when turns are rewarded by themselves, and none otherwise. It is a part of the
    total; the remainder belongs to the end of the episode.
    """

    terms: dict[str, float]
    total: float
    by_turn: tuple[float, ...] = ()

    @classmethod
    def sum_of(cls, terms: dict[str, float], by_turn: tuple[float, ...] = ()) -> RewardBreakdown:
        """The breakdown whose total is the sum of its terms."""
        return cls(terms, sum(terms.values()), by_turn)

    def with_extra(self, terms: Mapping[str, float]) -> RewardBreakdown:
        """The same with further terms, which are added to the total."""
        return replace(self, terms={**self.terms, **terms}, total=self.total + sum(terms.values()))

    def as_dict(self) -> dict[str, float]:
        """The terms and the total, for a JSON line."""
        return {**self.terms, "total": self.total}
