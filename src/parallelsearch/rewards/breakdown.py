"""A reward taken apart: its named terms, its total, and what of it was earned by single turns."""

from __future__ import annotations

from dataclasses import dataclass

# The terms of all semantics; each semantics has some of them (see its module).
TERMS = ("outcome", "decomposition", "search_count", "format", "f1", "tool", "key", "steps")


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

    def as_dict(self) -> dict[str, float]:
        """The terms and the total, for a JSON line."""
        return {**self.terms, "total": self.total}
