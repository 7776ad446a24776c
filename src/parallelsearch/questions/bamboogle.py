"""Bamboogle (Press et al., 2023): 125 two-hop questions, published as a sheet with the columns Question and Answer."""

from __future__ import annotations

from parallelsearch.questions.layouts import Details, Reader, own_layout
from parallelsearch.questions.row import Row


def details(row: Row, qid: str | None) -> Details:
    return Details(hops=2)


READER = Reader(
    "bamboogle", details, (own_layout(question=("Question", "question"), answer=("Answer", "answer"), has_ids=False),)
)
