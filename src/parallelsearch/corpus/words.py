"""Text -> consecutive blocks of 100 words, as DPR's passages are cut (Karpukhin et al. 2020, section 4.1).

A word is what white space surrounds. Scripts that are written without spaces have no such words: there each Han
character or kana counts as one, and so do four letters of Thai, Lao, Khmer or Burmese, whose words only a dictionary
could tell.
"""

from __future__ import annotations

import regex

WORDS_PER_PASSAGE = 100
_CHARACTERS = r"\p{Han}\p{Hiragana}\p{Katakana}"
_LETTERS = r"\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_UNSPACED = regex.compile(f"[{_CHARACTERS}{_LETTERS}]")
_WORD = regex.compile(
    rf"[\p{{Ps}}\p{{Pi}}]*(?:[{_CHARACTERS}]|(?:[{_LETTERS}]\p{{M}}*){{1,4}})[\p{{M}}\p{{Pe}}\p{{Pf}}\p{{Po}}ー]*"
    rf"|[^\s{_CHARACTERS}{_LETTERS}]+"
)


def word_blocks(text: str, size: int = WORDS_PER_PASSAGE) -> list[str]:
    """`text` (words separated by single spaces) in consecutive blocks of `size` words.

    The last block keeps what is left and may be as short as one word: no word is in two blocks, and none is lost.
    """
    if not is_unspaced(text):
        words = text.split()
        return [" ".join(words[start : start + size]) for start in range(0, len(words), size)]
    starts = [match.start() for match in _WORD.finditer(text)]
    ends = [*starts[size::size], len(text)]
    return [text[start:end].strip() for start, end in zip(starts[::size], ends, strict=True)]


def is_unspaced(text: str) -> bool:
    """True where some of `text` is in a script that is written without spaces."""
    return _UNSPACED.search(text) is not None


def count_words(text: str) -> int:
    """Number of words, as `word_blocks` counts them."""
    return len(_WORD.findall(text)) if is_unspaced(text) else len(text.split())
