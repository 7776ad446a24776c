"""What the model is shown after a search: each sub-query's passages within a token budget, inside one closed block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from parallelsearch.agent.protocol import render_hit, render_information
from parallelsearch.agent.tags import SEARCH_R1, Tags
from parallelsearch.records import Hit, SubQuery


@dataclass(frozen=True, slots=True)
class Observation:
    """Text appended to an episode, its token ids, and for each sub-query how many passages it shows."""

    text: str
    token_ids: list[int]
    shown: tuple[int, ...]


def render_observation(
    sub_queries: Sequence[SubQuery], budget: int, tokenizer: Any, tags: Tags = SEARCH_R1
) -> Observation:
    """The information block of a search turn.

    Each sub-query shows as many of its passages, best first, as fit into `budget` tokens (its heading not counted).
    When not even the first fits, that passage is cut after the last whole word that fits.
    """
    results, shown = [], []
    for sub_query in sub_queries:
        kept = passages_within(sub_query.hits, budget, tokenizer, tags)
        results.append((sub_query.text, "".join(kept)))
        shown.append(len(kept))
    text = render_information(results, tags)
    return Observation(text, tokenizer.encode(text, add_special_tokens=False), tuple(shown))


def passages_within(hits: Sequence[Hit], budget: int, tokenizer: Any, tags: Tags = SEARCH_R1) -> list[str]:
    """A line for each of the first `hits` that fit into `budget` tokens; the first one cut where not even it fits."""
    lines = [render_hit(rank, hit, tags) for rank, hit in enumerate(hits, 1)]
    if not lines:
        return []
    kept, used = [], 0
    for line in lines:
        used += _tokens_of_line(line, tokenizer)
        if used > budget:
            break
        kept.append(line)
    if not kept and (cut := _cut_after_word(lines[0], budget, tokenizer)):
        kept.append(cut)
    return kept


def documents(hits: Sequence[Hit], max_chars: int) -> list[str]:
    """A line for each of `hits`, its text cut to at most `max_chars` characters at the end of a word."""
    shortened = (replace(hit, passage=replace(hit.passage, text=_cut(hit.passage.text, max_chars))) for hit in hits)
    return [render_hit(rank, hit) for rank, hit in enumerate(shortened, 1)]


def _cut(text: str, max_chars: int) -> str:
    text = " ".join(text.split())
    if len(text) <= max_chars:
        return text
    return text[:max_chars] if " " not in text[: max_chars + 1] else text[: max_chars + 1].rpartition(" ")[0]


def _cut_after_word(line: str, budget: int, tokenizer: Any) -> str:
    """The longest run of whole words from the start of `line`, and a line end, within `budget` tokens; '' if none."""
    words = line.split()
    low, high = 0, len(words)  # low words fit, high may not
    while low < high:
        middle = (low + high + 1) // 2
        if _tokens(" ".join(words[:middle]) + "\n", tokenizer) <= budget:
            low = middle
        else:
            high = middle - 1
    return " ".join(words[:low]) + "\n" if low else ""


@lru_cache(maxsize=1 << 14)  # the episodes of a question, and of its group, find the same passages
def _tokens_of_line(line: str, tokenizer: Any) -> int:
    return _tokens(line, tokenizer)


def _tokens(text: str, tokenizer: Any) -> int:
    return len(tokenizer.encode(text, add_special_tokens=False))
