"""The length of what the model wrote: each hundred words cost the weight once."""

from __future__ import annotations

from parallelsearch.records import Episode, Question


def term(episode: Episode, question: Question) -> float:
    """Minus the words of all generations, in hundreds; what was retrieved is not counted. At most 0."""
    return -sum(len(turn.text.split()) for turn in episode.turns) / 100
