"""A raw file of a data set as a list of Question: layout, clean-up, structure tag, refusal of anything doubtful."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path

from parallelsearch.config import QuestionLayout
from parallelsearch.errors import DataError
from parallelsearch.questions import (
    bamboogle,
    geoworld,
    hotpotqa,
    multihop_rag,
    musique,
    nq,
    popqa,
    triviaqa,
    two_wiki,
)
from parallelsearch.questions.layouts import Core, Details, Layout, Reader, layout_of
from parallelsearch.questions.names import dataset_name, recognised
from parallelsearch.questions.own import own_reader
from parallelsearch.questions.row import NEXT_STEP, Row
from parallelsearch.questions.rows import read_rows
from parallelsearch.questions.structure import needs_type, structure_of, table_path
from parallelsearch.questions.text import clean
from parallelsearch.records import Question, Structure
from parallelsearch.titles import page_title

_MODULES = (geoworld, hotpotqa, two_wiki, musique, bamboogle, nq, triviaqa, popqa, multihop_rag)
READERS_BY_DATASET: dict[str, Reader] = {module.READER.dataset: module.READER for module in _MODULES}
UNKNOWN_SPLIT = "unknown"


class Skip(StrEnum):
    """Rows that are refused unless one asks to leave them out."""

    UNTYPED = "untyped"  # no type, where the structure depends on it
    UNANSWERABLE = "unanswerable"  # MuSiQue-Full's questions whose context cannot answer them
    REPEATED = "repeated"  # the same row once more: the id, and everything else, is an earlier one's


@dataclass(frozen=True, slots=True)
class Reading:
    """The questions of a file, the layout it was in, and how many rows were left out for which reason."""

    dataset: str
    layout: str
    questions: list[Question]
    left_out: dict[str, int] = field(default_factory=dict)


def read_file(
    dataset: str,
    path: Path,
    *,
    split: str | None = None,
    limit: int | None = None,
    skip: Collection[Skip] = (),
    answers: Path | None = None,
    structures: Path | None = None,
    layout: QuestionLayout | None = None,
) -> Reading:
    """Reads the questions of `path`, a file of `dataset` in any of its layouts.

    `split` names the split; rows that say they are of another one are left out. Without it a row's own split counts,
    else 'unknown'. `limit` stops after so many questions; later rows are then not checked. `answers` is the second file
    of a data set that keeps its answers apart (MultiHop-RAG). `structures` is another table than config/structure.yaml.
    With a `layout`, `dataset` is the name of a data set of one's own.

    Raises DataError with file, line (and array index) and reason for the first row that is broken, lacks a field, is
    empty, repeats an id, or whose type has no structure.
    """
    reader = own_reader(dataset, layout) if layout else READERS_BY_DATASET[dataset_name(dataset)]
    name, path = reader.dataset, Path(path)
    if limit is not None and limit < 1:
        raise DataError(f"the limit is {limit}; give a positive number of questions.")
    found: Layout | None = None
    questions: list[Question] = []
    left_out: Counter[str] = Counter()
    places: dict[str, tuple[str, bytes]] = {}
    contents: set[bytes] = set()
    table = Path(structures) if structures else table_path()
    untagged = not reader.tags_itself and needs_type(name, table=table)
    for row in _rows(reader, path, answers):
        found = found or layout_of(row, reader)
        core = found.core(row)
        details = _details(row, core, found, reader)
        _check_dataset(row, core, name)
        content = _content(row)
        if Skip.REPEATED in skip and content in contents:
            left_out[Skip.REPEATED] += 1
            continue
        contents.add(content)
        if split is not None and core.split not in (None, split):
            _claim(places, row, core.qid, content)
            left_out[f"of split {core.split}"] += 1
            continue
        if untagged and details.type is None:
            if Skip.UNTYPED not in skip:
                _answers(row, core, reader)  # a split without answers lacks types as well: say that first
                raise row.refusal(
                    f"the question has no type, and {name} is tagged by type",
                    f"import a file that has types, or leave such rows out with --skip {Skip.UNTYPED}",
                )
            left_out[Skip.UNTYPED] += 1
            continue
        if not details.answerable:
            if Skip.UNANSWERABLE not in skip:
                _answers(row, core, reader)
                raise row.refusal(
                    "the question is marked unanswerable or has fewer supporting paragraphs than hops",
                    f"import the answerable file, or leave such rows out with --skip {Skip.UNANSWERABLE}",
                )
            left_out[Skip.UNANSWERABLE] += 1
            continue
        tag = Structure(details.structure) if reader.tags_itself and details.structure else None
        question = _question(row, core, details, reader, split, tag or _tag(row, details, name, table))
        _claim(places, row, question.qid, content)
        questions.append(question)
        if len(questions) == limit:
            break
    if not questions or found is None:
        raise DataError(f"{path}: no question is left (left out: {_counts(left_out)}); name another split or file.")
    return Reading(name, found.name, questions, dict(left_out))


def _rows(reader: Reader, path: Path, answers: Path | None) -> Iterator[Row]:
    if answers is None:
        return read_rows(path)
    if not reader.answers_apart:
        raise DataError(f"{reader.dataset} keeps its answers in the question file; leave out --answers {answers}.")
    truth = multihop_rag.read_ground_truth(answers)
    return (multihop_rag.with_ground_truth(row, truth, answers) for row in read_rows(path))


def _details(row: Row, core: Core, layout: Layout, reader: Reader) -> Details:
    read = layout.details or reader.details
    return read(layout.details_in(row), core.qid)


def _check_dataset(row: Row, core: Core, dataset: str) -> None:
    found = recognised(core.dataset) if core.dataset else dataset
    if found != dataset:
        next_step = f"import the file as {found}" if found else f"name a file of {dataset}"
        raise row.refusal(f"the row is of data set '{core.dataset}', not {dataset}", next_step)


def _claim(places: dict[str, tuple[str, bytes]], row: Row, qid: str | None, content: bytes) -> None:
    """Notes where an id stands, and its row's content; a second place for it is a DataError."""
    if qid is None:
        return
    if qid in places:
        place, earlier = places[qid]
        reason = f"id '{qid}' is already that of {place}"
        if content != earlier:
            raise row.refusal(reason)
        raise row.refusal(
            f"{reason}, and the rows are the same", f"leave such rows out with --skip {Skip.REPEATED}, or {NEXT_STEP}"
        )
    places[qid] = (f"line {row.line}" if row.line is not None else f"row index {row.index}"), content


def _content(row: Row) -> bytes:
    """Equal for rows with the same fields."""
    return blake2b(json.dumps(row.fields, sort_keys=True, default=str).encode(), digest_size=16).digest()


def _answers(row: Row, core: Core, reader: Reader) -> tuple[str, ...]:
    """The answers, each once; where there is none, a DataError that names the splits that have some."""
    answers = dict.fromkeys(answer for given in core.answers if (answer := _cleaned(row, "answer", given)))
    if answers:
        return tuple(answers)
    reason = core.unanswered or ("every answer is empty" if core.answers else "the list of answers is empty")
    next_step = NEXT_STEP
    if reader.answered:
        splits = " and ".join(reader.answered)
        next_step = f"import a split that is published with its answers ({splits} of {reader.dataset}), or {NEXT_STEP}"
    if reader.answers_apart:
        next_step = "add it, or name the file with the answers with --answers"
    raise row.refusal(reason, next_step)


def _tag(row: Row, details: Details, dataset: str, table: Path) -> Structure:
    tag = structure_of(dataset, details.type, row=row.place, table=table)
    if details.structure not in (None, tag.value):
        raise row.refusal(f"structure is '{details.structure}', but type '{details.type}' of {dataset} is {tag.value}")
    return tag


def _question(row: Row, core: Core, details: Details, reader: Reader, split: str | None, tag: Structure) -> Question:
    text = _cleaned(row, "question", core.question)
    if not text:
        raise row.refusal("the question is empty")
    answers = _answers(row, core, reader)
    own_split = split or core.split or core.split_hint
    return Question(
        qid=core.qid or "-".join([reader.dataset, *([own_split] if own_split else []), str(row.index)]),
        dataset=reader.dataset,
        split=own_split or UNKNOWN_SPLIT,
        text=text,
        golden_answers=answers,
        type=details.type or "",
        structure=tag,
        hops=details.hops,
        supporting_titles=_titles(row, details),
        supporting_ids=details.ids,
    )


def _titles(row: Row, details: Details) -> tuple[str, ...]:
    titles = (page_title(_whole(row, "title", title)) for title in details.titles)
    return tuple(dict.fromkeys(title for title in titles if title))


def _cleaned(row: Row, what: str, text: str) -> str:
    return clean(_whole(row, what, text))


def _whole(row: Row, what: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise row.refusal(f"the {what} holds half a surrogate pair at character {error.start}") from None
    return text


def _counts(left_out: Counter[str]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in left_out.items()) or "none"
