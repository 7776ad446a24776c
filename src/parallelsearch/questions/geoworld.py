"""GeoWorld: the generator writes the fields of Question, one object a line."""

from __future__ import annotations

from parallelsearch.questions.layouts import Details, Reader
from parallelsearch.questions.row import Row


def details(row: Row, qid: str | None) -> Details:
    return Details(type=row.optional_text("type"), hops=row.whole_number("hops"))


READER = Reader("geoworld", details)
