"""HotpotQA (Yang et al., 2018): hotpot_{train,dev}_*.json is an array; types comparison and bridge, two hops each."""

from __future__ import annotations

from parallelsearch.questions.layouts import Details, Reader, own_layout
from parallelsearch.questions.row import Row
from parallelsearch.questions.supporting import supporting_titles


def details(row: Row, qid: str | None) -> Details:
    return Details(type=row.optional_text("type"), hops=2, titles=supporting_titles(row))


READER = Reader("hotpotqa", details, (own_layout(qid=("_id", "id"), further=(("type",),)),), answered=("train", "dev"))
