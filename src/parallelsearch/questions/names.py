"""Names of data sets: one spelling inside; the spellings in use outside (MultiHop-RAG, MultiHopRAG) are accepted."""

from __future__ import annotations

from functools import cache
from typing import get_args

from parallelsearch.config import OWN, READERS
from parallelsearch.errors import DataError

DATASETS: tuple[str, ...] = tuple(name for name in get_args(READERS) if name != OWN)

_ALSO_CALLED = {
    "hotpotqa": ("hotpot",),
    "2wikimultihopqa": ("2wiki", "2wikimqa", "2wikimultihop", "wikimultihopqa"),
    "nq": ("nqopen", "naturalquestions", "naturalquestionsopen"),
    "triviaqa": ("trivia", "tqa"),
}


def dataset_name(name: str) -> str:
    """The name used in this project for a data set, whatever its case, hyphens, underscores and spaces.

    Raises DataError for an unknown one, with the known ones.
    """
    known = _spellings().get(_fold(name))
    if known is None:
        raise DataError(f"'{name}' is not a known data set; known data sets: {', '.join(DATASETS)}.")
    return known


def recognised(name: str) -> str | None:
    """The data set a row says it is from, or None: the last part of 'owner/name', also as veRL's 'searchR1_name'."""
    folded = _fold(name.rsplit("/", 1)[-1])
    return _spellings().get(folded) or _spellings().get(folded.removeprefix("searchr1"))


def _fold(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())


@cache
def _spellings() -> dict[str, str]:
    spellings = {_fold(name): name for name in DATASETS}
    return spellings | {alias: name for name, aliases in _ALSO_CALLED.items() for alias in aliases}
