"""Text -> the words that BM25 counts, in any script; an index and its queries have to be cut by the same rule.

Letters are compared composed (NFC) and case-folded; marks that one writer sets and another does not (soft hyphens,
joiners, Arabic and Hebrew vowel signs) do not count. A word is a row of letters, marks and digits, if it has at least
two of them. Scripts that are written without spaces, and Hangul, whose particles hang on the words, have no such words:
there each character and each pair of neighbours counts, as in Lucene's CJK bigrams.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise

import regex

RULE = "unicode words, characters and pairs of unspaced scripts, 2"  # changes when other words come out of a text
_SCRIPTS = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Hangul}\p{Yi}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_UNSPACED = rf"[[{_SCRIPTS}\p{{Javanese}}\p{{Balinese}}\p{{Tai_Tham}}\p{{Tai_Le}}\p{{New_Tai_Lue}}ー]&&\w]"
_LETTERS = regex.compile(r"\w+")
_RUN = regex.compile(rf"(?V1){_UNSPACED}")
_PART = regex.compile(rf"(?V1){_UNSPACED}[{_UNSPACED}\p{{M}}]*|[\w--{_UNSPACED}]+")
_CHARACTER = regex.compile(r"\X")  # a letter with its marks
_WIDTHS = regex.compile("[\uff00-\uffef]+")  # full-width Latin letters and digits, half-width kana
# Soft hyphen, dot above (of a lower-cased İ), Hebrew points, Arabic vowel signs and tatweel, joiners, direction marks.
_IGNORED = regex.compile(
    "[\u00ad\u0307\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0640\u064b-\u065f\u0670\u200c-\u200f\u202a-\u202e"
    "\u2060\ufeff]"
)


class Words:
    """Words of texts, without stopwords and stemmed, where a list and a Snowball stemmer is named ('none': without)."""

    def __init__(self, stemmer: str, stopwords: str) -> None:
        import Stemmer

        self._stemmer = None if stemmer == "none" else Stemmer.Stemmer(stemmer)
        self._stopwords = None if stopwords == "none" else stopwords

    def __call__(self, texts: Sequence[str]) -> list[list[str]]:
        import bm25s

        words: list[list[str]] = bm25s.tokenize(
            [" ".join(_words(text)) for text in texts],
            token_pattern="[^ ]+",
            stopwords=self._stopwords,
            stemmer=self._stemmer,
            return_ids=False,
            show_progress=False,
        )
        return words


def _words(text: str) -> Iterable[str]:
    return chain.from_iterable(map(_parts, _LETTERS.findall(_folded(text))))


def _parts(letters: str) -> list[str]:
    """The words in a row of letters, marks and digits; of unspaced scripts the characters and pairs of neighbours."""
    if letters.isascii() or not _RUN.search(letters):
        return [letters] if len(letters) > 1 else []
    words: list[str] = []
    for part in _PART.findall(letters):
        characters = _CHARACTER.findall(part) if _RUN.match(part) else [part]
        words += [*characters, *map("".join, pairwise(characters))]
    return words


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    text = _WIDTHS.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text)
    return _IGNORED.sub("", unicodedata.normalize("NFC", text.casefold()))
