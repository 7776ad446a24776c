"""Words of a passage as queries, cut without BM25's own rule: where that rule cuts wrongly, they find nothing.

A passage as a query tells little: whatever an index takes for its words, both have the same.
"""

from __future__ import annotations

import unicodedata

import numpy as np
import regex

from parallelsearch.corpus.words import is_unspaced, word_blocks

NEIGHBOURS = 5  # words of which the longest is taken: hardly ever a stopword
COMPARED = 3  # first characters of a word: stemming changes its end
_LETTERS = regex.compile(r"[\p{L}\p{M}\p{N}]+")


def a_word(text: str, rng: np.random.Generator) -> str:
    """A long word of `text`; of a script without spaces two neighbours as `word_blocks` counts them.

    '' where `text` has no letters at the place that was drawn.
    """
    place = _any(word_blocks(" ".join(text.split()), NEIGHBOURS), rng)
    if is_unspaced(place):
        place = _any(word_blocks(place, 2), rng)
    return max(_LETTERS.findall(place), key=len, default="")


def _any(blocks: list[str], rng: np.random.Generator) -> str:
    return blocks[int(rng.integers(len(blocks)))]


def has_word(text: str, word: str) -> bool:
    """True where `text` has the word, or one that begins like it."""
    return _folded(word)[:COMPARED] in _folded(text)


def other_form(text: str) -> str:
    """`text` with its accents decomposed where they are composed (NFD for NFC), or the other way round."""
    composed = unicodedata.normalize("NFC", text)
    return unicodedata.normalize("NFD", text) if text == composed else composed


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text.casefold())
