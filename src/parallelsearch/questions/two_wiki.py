"""2WikiMultiHopQA (Ho et al., 2020): {train,dev}.json is an array; four types, `bridge_comparison` needs four pages."""

from __future__ import annotations

from parallelsearch.questions.layouts import Details, Reader, own_layout
from parallelsearch.questions.row import Row
from parallelsearch.questions.supporting import supporting_titles

HOPS = {"comparison": 2, "inference": 2, "compositional": 2, "bridge_comparison": 4}


def details(row: Row, qid: str | None) -> Details:
    type = row.optional_text("type")
    return Details(type=type, hops=HOPS.get(type or ""), titles=supporting_titles(row))


READER = Reader(
    "2wikimultihopqa", details, (own_layout(qid=("_id", "id"), further=(("type",),)),), answered=("train", "dev")
)
