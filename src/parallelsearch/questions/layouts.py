"""The layouts in which question files are published, and how the layout of a file is told from its first row.

A layout says where id, question and answers stand; what only one data set has (types, supporting titles, hops) is read
by that data set's own function from the object the layout names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from parallelsearch.errors import DataError
from parallelsearch.questions.row import Row
from parallelsearch.questions.supporting import supporting_titles

Spellings = tuple[str, ...]  # the names one field goes by; the first is the name shown in messages


@dataclass(frozen=True, slots=True)
class Core:
    """What every layout holds. `split` is the row's own; `split_hint` is only what its id suggests; `unanswered` says
    why there are no answers."""

    qid: str | None
    question: str
    answers: list[str]
    dataset: str | None = None
    split: str | None = None
    split_hint: str | None = None
    unanswered: str = ""


@dataclass(frozen=True, slots=True)
class Details:
    """What a data set adds. `answerable` is False where the context was made unable to answer the question."""

    type: str | None = None
    hops: int | None = None
    titles: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()
    structure: str | None = None
    answerable: bool = True


ReadDetails = Callable[[Row, str | None], Details]  # the object that holds the details, the question's id


@dataclass(frozen=True, slots=True)
class Layout:
    """`fields` are the fields its rows must have; `details_in` gives the object the data set's details are read from;
    `details` replaces the data set's own way of reading them."""

    name: str
    fields: tuple[Spellings, ...]
    core: Callable[[Row], Core]
    details_in: Callable[[Row], Row] = lambda row: row
    details: ReadDetails | None = None


@dataclass(frozen=True, slots=True)
class Reader:
    """Everything known about one data set's files."""

    dataset: str
    details: ReadDetails
    own: tuple[Layout, ...] = ()
    answered: tuple[str, ...] = ()  # splits that are published with their answers, where others are not
    answers_apart: bool = False  # published with the answers in a second file, by question id
    tags_itself: bool = False  # its details say the structure, and no other layout is looked for


def own_layout(
    *,
    question: Spellings = ("question",),
    answer: Spellings = ("answer",),
    qid: Spellings = ("id",),
    has_ids: bool = True,
    further: tuple[Spellings, ...] = (),
    answers: Callable[[Row], list[str]] | None = None,
) -> Layout:
    """A layout of a data set's authors; `answers` reads the answers where they are more than one text in `answer`.

    Without `has_ids` the files are published without ids; a row that has one keeps it.
    """

    def core(row: Row) -> Core:
        absence = row.absence(*answer)
        found = [] if absence else answers(row) if answers else [row.text(*answer)]
        return Core(row.identifier(*qid, required=has_ids), row.text(*question), found, unanswered=absence)

    return Layout("authors", (question, answer, *((qid,) if has_ids else ()), *further), core)


def layout_of(row: Row, reader: Reader) -> Layout:
    """The layout whose fields the first row of a file has most of. Raises DataError when it has few of any."""
    if reader.tags_itself:
        return reader.own[0]
    candidates = (*reader.own, *SHARED)

    def fit(layout: Layout) -> tuple[float, int]:
        present = sum(row.has(*spellings) for spellings in layout.fields)
        return present / len(layout.fields), present

    best = max(candidates, key=fit)  # the first of equals
    if fit(best)[0] < 0.5 or fit(best)[1] < 2:
        known = "; ".join(f"{layout.name} ({_names(layout.fields)})" for layout in candidates)
        found = ", ".join(list(row.fields)[:12]) or "no fields"
        raise DataError(
            f"{row.place}: the fields ({found}) are in no layout known for {reader.dataset};"
            f" import a file in one of these: {known}."
        )
    return best


def _names(fields: Sequence[Spellings]) -> str:
    return ", ".join(spellings[0] for spellings in fields)


def _flashrag(row: Row) -> Core:
    qid = row.identifier("id")
    prefix, _, number = (qid or "").rpartition("_")
    hint = prefix if prefix in ("train", "dev", "test") and number.isdigit() else None
    return Core(qid, row.text("question"), row.texts("golden_answers"), split_hint=hint)


def _verl(row: Row) -> Core:
    extra, truth = row.object("extra_info"), row.fields.get("reward_model")
    if not isinstance(truth, dict) or truth.get("ground_truth") is None:
        raise row.refusal("field 'reward_model.ground_truth' is missing or null")
    reward = row.object("reward_model")
    if isinstance(truth["ground_truth"], dict):
        answers = reward.object("ground_truth").texts("target")
    else:
        answers = reward.texts("ground_truth")
    index = extra.identifier("index", required=False)
    return Core(
        qid=row.identifier("id", required=False) or index,
        question=row.text("question") if row.has("question") else extra.text("question"),
        answers=answers,
        dataset=row.text("data_source"),
        split=extra.optional_text("split"),
    )


def _normalised(row: Row) -> Core:
    return Core(
        qid=row.identifier("id"),
        question=row.text("question"),
        answers=row.texts("golden_answers"),
        dataset=row.text("dataset"),
        split=row.optional_text("split"),
    )


def _normalised_details(row: Row, qid: str | None) -> Details:
    hops, supporting = row.whole_number("hops"), row.whole_number("n_supporting")
    too_few = hops is not None and supporting is not None and supporting < hops
    return Details(
        type=row.optional_text("type"),
        hops=hops,
        titles=supporting_titles(row),
        answerable=row.fields.get("answerable") is not False and not too_few,
    )


def _question(row: Row) -> Core:
    return Core(
        qid=row.identifier("qid"),
        question=row.text("text"),
        answers=row.texts("golden_answers"),
        dataset=row.text("dataset"),
        split=row.optional_text("split"),
    )


def _question_details(row: Row, qid: str | None) -> Details:
    return Details(
        type=row.optional_text("type"),
        hops=row.whole_number("hops"),
        titles=tuple(row.texts("supporting_titles", required=False)),
        ids=row.whole_numbers("supporting_ids"),
        structure=row.optional_text("structure"),
    )


FLASHRAG = Layout(
    "flashrag", (("id",), ("question",), ("golden_answers",)), _flashrag, lambda row: row.object("metadata")
)
VERL = Layout(
    "verl",
    (("data_source",), ("prompt",), ("ability",), ("reward_model",)),
    _verl,
    lambda row: row.object("extra_info"),
)
NORMALISED = Layout(
    "normalised",
    (("id",), ("dataset",), ("question",), ("golden_answers",)),
    _normalised,
    details=_normalised_details,
)
QUESTION = Layout(
    "question",
    (("qid",), ("dataset",), ("text",), ("golden_answers",), ("type",)),
    _question,
    details=_question_details,
)
SHARED = (FLASHRAG, VERL, NORMALISED, QUESTION)
