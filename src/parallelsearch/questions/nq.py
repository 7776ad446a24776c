"""NQ-open (Lee et al., 2019): NQ-open.{train,dev}.jsonl, lines with a question and its list of answers, no ids."""

from __future__ import annotations

from parallelsearch.questions.layouts import Details, Reader, own_layout
from parallelsearch.questions.row import Row


def answers(row: Row) -> list[str]:
    return row.texts("answer")


def details(row: Row, qid: str | None) -> Details:
    return Details(hops=1)


READER = Reader("nq", details, (own_layout(answers=answers, has_ids=False),), answered=("train", "dev"))
