"""Whether a split has the size, in all and by structure, that published figures of it were measured on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from parallelsearch.config import Section
from parallelsearch.errors import MismatchError
from parallelsearch.questions.store import counts_by_structure
from parallelsearch.records import Question, Structure


class WantedSizes(Section):
    """Numbers of questions, and the file's checksum; what is not named is not checked."""

    questions: int | None = None
    structures: dict[Structure, int] = Field(default_factory=dict)
    sha256: str | None = None


def check_sizes(questions: Sequence[Question], wanted: WantedSizes, file: Path) -> None:
    """Raises MismatchError, naming every number that differs, when `questions` of `file` are not as many as wanted."""
    found = counts_by_structure(questions)
    pairs = [("questions", len(questions), wanted.questions or len(questions))]
    pairs += [(f"{tag} questions", found.get(tag, 0), number) for tag, number in wanted.structures.items()]
    wrong = [f"{have} {what} where {want} are declared" for what, have, want in pairs if have != want]
    if wrong:
        raise MismatchError(
            f"{file} has {', '.join(wrong)}; take the whole file of the split, or correct the numbers of datasets."
        )
