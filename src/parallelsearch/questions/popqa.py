"""PopQA (Mallen et al., 2023): popQA.tsv; the type is the relation asked for, answers are a JSON list in one cell."""

from __future__ import annotations

from parallelsearch.questions.layouts import Details, Reader, own_layout
from parallelsearch.questions.row import Row


def answers(row: Row) -> list[str]:
    return row.texts("possible_answers")


def details(row: Row, qid: str | None) -> Details:
    title = row.optional_text("s_wiki_title")
    return Details(type=row.optional_text("prop", "type"), hops=1, titles=(title,) if title else ())


READER = Reader(
    "popqa",
    details,
    (own_layout(answer=("possible_answers",), further=(("prop",),), answers=answers),),
)
