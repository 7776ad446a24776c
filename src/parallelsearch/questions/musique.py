"""MuSiQue (Trivedi et al., 2022): musique_{ans,full}_v1.0_{train,dev}.jsonl.

The type is the shape of the question's reasoning graph, the front of its id ('3hop1__…'). MuSiQue-Full pairs every
question with one of the same id whose context lacks a supporting paragraph; it says so in `answerable`, but copies
drop that field, so a question with fewer supporting paragraphs than hops counts as such as well.
"""

from __future__ import annotations

import re

from parallelsearch.questions.layouts import Details, Reader, own_layout
from parallelsearch.questions.row import Row

_REASONING_GRAPH = re.compile(r"(([234])hop\d?)__")


def answers(row: Row) -> list[str]:
    return [row.text("answer"), *row.texts("answer_aliases", required=False)]


def details(row: Row, qid: str | None) -> Details:
    graph = _REASONING_GRAPH.match(qid or "")
    steps = row.objects("question_decomposition")
    hops = int(graph.group(2)) if graph else len(steps) or None
    paragraphs = [paragraph for paragraph in row.objects("paragraphs") if paragraph.fields.get("is_supporting")]
    if not row.has("paragraphs"):  # FlashRAG keeps only the supporting paragraphs, inside the decomposition
        paragraphs = [step.object("support_paragraph") for step in steps if step.object("support_paragraph").fields]
    too_few = row.has("paragraphs") and hops is not None and len(paragraphs) < hops
    return Details(
        type=graph.group(1) if graph else None,
        hops=hops,
        titles=tuple(paragraph.text("title") for paragraph in paragraphs),
        answerable=row.fields.get("answerable") is not False and not too_few,
    )


READER = Reader(
    "musique", details, (own_layout(further=(("paragraphs",),), answers=answers),), answered=("train", "dev")
)
