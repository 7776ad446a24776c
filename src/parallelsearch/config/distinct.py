"""Lists that are sets: an entry given twice would be planned, trained and counted twice."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

Entry = TypeVar("Entry")


def _without_repetition(entries: list[Entry]) -> list[Entry]:
    for number, entry in enumerate(entries):
        if entry in entries[:number]:
            raise PydanticCustomError("repeated_entry", "{entry} is given twice; give it once", {"entry": repr(entry)})
    return entries


Distinct = Annotated[list[Entry], AfterValidator(_without_repetition), Field(json_schema_extra={"uniqueItems": True})]
