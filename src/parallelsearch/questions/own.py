"""A data set of one's own: which field holds what, and which type has which structure, is said by a QuestionLayout."""

from __future__ import annotations

from parallelsearch.config import QuestionLayout
from parallelsearch.questions.layouts import Core, Details, Layout, Reader
from parallelsearch.questions.row import Row
from parallelsearch.questions.structure import ANY_TYPE
from parallelsearch.records import Structure

DECLARED = "declared"  # the layout's name in the question file's provenance


def own_reader(name: str, layout: QuestionLayout) -> Reader:
    """The reader of the data set `name`; a row that is not as `layout` says is refused with the key that says it."""

    def core(row: Row) -> Core:
        for key in ("question", "answers"):
            field = getattr(layout, key)
            if not row.has(field):
                raise _unlike(row, name, key, f"field '{field}' is missing")
        qid = row.identifier(layout.id, required=False)
        return Core(qid, row.text(layout.question), row.texts(layout.answers))

    def details(row: Row, qid: str | None) -> Details:
        type = row.optional_text(layout.type)
        return Details(
            type=type,
            hops=_hops(row, layout.hops),
            titles=tuple(row.texts(layout.titles, required=False)),
            structure=_structure(row, name, layout, type),
        )

    declared = Layout(DECLARED, ((layout.question,), (layout.answers,)), core)
    return Reader(name, details, (declared,), tags_itself=True)


def _hops(row: Row, field: str) -> int | None:
    value = row.fields.get(field)
    if isinstance(value, str) and (not value.strip() or value.strip().isdecimal()):  # a cell of a table
        return int(value) if value.strip() else None
    return row.whole_number(field)


def _structure(row: Row, name: str, layout: QuestionLayout, type: str | None) -> str:
    structures = layout.structures or {tag.value: tag.value for tag in Structure}
    tag = structures.get(type or "", structures.get(ANY_TYPE))
    if tag is None and type is None:
        raise _unlike(row, name, "type", f"field '{layout.type}' is missing or empty")
    if tag is None:
        known = ", ".join(structures)
        raise row.refusal(
            f"type '{type}' has no structure; known types: {known}", f"add it to datasets.{name}.layout.structures"
        )
    return tag


def _unlike(row: Row, name: str, key: str, reason: str) -> Exception:
    found = ", ".join(row.fields) or "nothing"
    also = ", or give all questions one structure with structures: {'*': ...}" if key == "type" else ""
    return row.refusal(
        f"{reason} (the row has: {found})", f"name the right field in datasets.{name}.layout.{key}{also}"
    )
