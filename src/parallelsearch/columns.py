"""Lists of objects in the shapes in which copies of data sets keep them: as lists, as columns, as JSON in a text.

`datasets`, and parquet files made with it, turn a list of objects into one object of columns: {"title": [..],
"sentences": [[..], ..]}.
"""

from __future__ import annotations

import json
from typing import Any


def unspelled(value: Any) -> Any:
    """`value`; of text that spells a JSON list or object, that list or object."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def rows_of(value: Any) -> Any:
    """A list of objects in place of columns of one length; anything else as it is, text that spells JSON as that."""
    value = unspelled(value)
    rows = _rows(value) if isinstance(value, dict) else None
    return value if rows is None else rows


def _rows(columns: dict[str, Any]) -> list[dict[str, Any]] | None:
    """None where `columns` are not all lists of one length; an object among them is columns in its turn."""
    lists: dict[str, list[Any]] = {}
    for name, column in columns.items():
        values = _rows(column) if isinstance(column, dict) else column
        if not isinstance(values, list):
            return None
        lists[name] = values
    if len({len(values) for values in lists.values()}) > 1:
        return None
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]
