"""One row of a raw question file: typed access to its fields, and the place that every fault in it is reported with."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parallelsearch.columns import rows_of, unspelled
from parallelsearch.errors import DataError
from parallelsearch.json_array import REPAIR

NEXT_STEP = REPAIR


@dataclass(frozen=True, slots=True)
class Row:
    """A JSON object, a line of a table, or an object nested in one.

    `index` counts the rows of the file from 0; `line` is the line (from 1) on which the row begins, None in a binary
    file; `in_array` tells that the rows are elements of a JSON array; `parent` is the path of a nested object.
    Field access takes alternative spellings and uses the first that is present. Every access raises DataError.
    """

    path: Path
    index: int
    fields: dict[str, Any]
    line: int | None = None
    in_array: bool = False
    parent: str = ""

    @property
    def place(self) -> str:
        """File, line and, in an array, index: 'dev.json, line 12 (array index 3)'."""
        if self.line is None:
            return f"{self.path}, row index {self.index}"
        return f"{self.path}, line {self.line}" + (f" (array index {self.index})" if self.in_array else "")

    def refusal(self, reason: str, next_step: str = NEXT_STEP) -> DataError:
        """The error to raise for this row: one sentence with place, reason and next step."""
        return DataError(f"{self.place}: {reason}; {next_step}.")

    def has(self, *names: str) -> bool:
        """True when one of the fields is present, null or not."""
        return any(name in self.fields for name in names)

    def absence(self, *names: str) -> str:
        """Why no field of these names has a value: 'field 'answer' is null'; '' where one has."""
        if self._value(names) is not None:
            return ""
        state = "null" if self.has(*names) else f"missing (the row has: {', '.join(self.fields) or 'nothing'})"
        return f"field '{self._spelt(names)}' is {state}"

    def text(self, *names: str) -> str:
        """Text of a required field, as it stands in the file."""
        value = self._required(names)
        if not isinstance(value, str):
            raise self.refusal(f"field '{self._spelt(names)}' holds {_kind(value)}, not text")
        return value

    def optional_text(self, *names: str) -> str | None:
        """Text of a field that may be absent, null or empty (then None)."""
        if self._value(names) is None:
            return None
        return self.text(*names).strip() or None

    def identifier(self, *names: str, required: bool = True) -> str | None:
        """An id: text or a whole number; None when the row has none and needs none."""
        value = self._required(names) if required else self._value(names)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise self.refusal(f"field '{self._spelt(names)}' holds {_kind(value)}, not an id")
        if not str(value).strip():
            raise self.refusal(f"field '{self._spelt(names)}' is empty")
        return str(value).strip()

    def whole_number(self, *names: str) -> int | None:
        """A count that may be absent or null."""
        value = self._value(names)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise self.refusal(f"field '{self._spelt(names)}' holds {_kind(value)}, not a whole number")
        return value

    def whole_numbers(self, *names: str) -> tuple[int, ...]:
        """A list of whole numbers; () when absent or null."""
        values = self._value(names)
        if values is None:
            return ()
        if not isinstance(values, list) or any(isinstance(v, bool) or not isinstance(v, int) for v in values):
            raise self.refusal(f"field '{self._spelt(names)}' is not a list of whole numbers")
        return tuple(values)

    def texts(self, *names: str, required: bool = True) -> list[str]:
        """A list of texts; one text counts as a list of one, and text that spells a JSON list as that list."""
        value = self._required(names) if required else self._value(names)
        if value is None:
            return []
        name = self._spelt(names)
        if isinstance(value, str):
            value = self._spelt_list(name, value) if value.lstrip().startswith("[") else [value]
        if not isinstance(value, list):
            raise self.refusal(f"field '{name}' holds {_kind(value)}, not a list of texts")
        for element in value:
            if not isinstance(element, str):
                raise self.refusal(f"field '{name}' holds {_kind(element)} in its list, not text")
        return value

    def objects(self, *names: str) -> list[Row]:
        """A list of nested objects, also as columns of one length (see `rows_of`); [] when absent or null."""
        values = rows_of(self._value(names))
        if values is None:
            return []
        name = self._spelt(names)
        if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
            raise self.refusal(f"field '{name}' is not a list of objects, nor columns of one length")
        return [self._nested(f"{name}[{number}]", value) for number, value in enumerate(values)]

    def object(self, *names: str) -> Row:
        """A nested object; an empty one when the field is absent or null."""
        value = unspelled(self._value(names))
        if value is not None and not isinstance(value, dict):
            raise self.refusal(f"field '{self._spelt(names)}' holds {_kind(value)}, not an object")
        return self._nested(self._spelt(names), value or {})

    def _nested(self, name: str, fields: dict[str, Any]) -> Row:
        return Row(self.path, self.index, fields, self.line, self.in_array, name)

    def _value(self, names: tuple[str, ...]) -> Any:
        return next((self.fields[name] for name in names if self.fields.get(name) is not None), None)

    def _required(self, names: tuple[str, ...]) -> Any:
        if absence := self.absence(*names):
            raise self.refusal(absence)
        return self._value(names)

    def _spelt(self, names: tuple[str, ...]) -> str:
        name = next((name for name in names if name in self.fields), names[0])
        return f"{self.parent}.{name}" if self.parent else name

    def _spelt_list(self, name: str, value: str) -> list[Any]:
        try:
            return list(json.loads(value))
        except ValueError:
            raise self.refusal(f"field '{name}' begins like a JSON list but is none: {value[:60]!r}") from None


def _kind(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int | float):
        return f"a number ({value})"
    kinds: dict[type, str] = {list: "a list", dict: "an object", str: "text"}
    return kinds.get(type(value), type(value).__name__)
