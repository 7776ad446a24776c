"""The elements of a JSON array one by one, each with the line it begins on.

Python's decoder reads a whole document and knows no line but that of a fault; a fault in the meaning of an element
(an empty question) needs the line as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parallelsearch.errors import DataError
from parallelsearch.questions.row import NEXT_STEP, Row

WRAPPERS = ("Data", "data", "queries")  # keys under which a published file keeps its rows
_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\r\n]*")


def find_array(text: str) -> int | None:
    """Position of the '[' that opens the rows: the document's own, or that of a key in WRAPPERS; None without one."""
    at = _after_blank(text, 0)
    if text[at : at + 1] == "[":
        return at
    if text[at : at + 1] != "{":
        return None
    try:
        while text[at] in "{,":
            key, at = _DECODER.raw_decode(text, _after_blank(text, at + 1))
            at = _after_blank(text, at)
            if text[at] != ":":
                return None
            at = _after_blank(text, at + 1)
            if key in WRAPPERS and text[at] == "[":
                return at
            _, at = _DECODER.raw_decode(text, at)
            at = _after_blank(text, at)
    except (ValueError, IndexError):
        return None
    return None


def array_rows(path: Path, text: str, at: int) -> Iterator[Row]:
    """The objects of the array that opens at position `at`, in order.

    Raises DataError for an element that is broken or no object, a file that breaks off, and text after the array that
    does not close it properly.
    """
    line, counted = text.count("\n", 0, at) + 1, at
    wrapped = text[:at].strip() != ""
    at = _after_blank(text, at + 1)
    index = 0
    while text[at : at + 1] != "]" or index:
        line, counted = line + text.count("\n", counted, at), at
        try:
            fields, at = _DECODER.raw_decode(text, at)
        except ValueError as error:
            raise _broken(path, text, error, at, index) from None
        row = Row(path, index, fields, line, in_array=True)
        if not isinstance(fields, dict):
            raise row.refusal(f"{type(fields).__name__} instead of an object")
        yield row
        index += 1
        at = _after_blank(text, at)
        if text[at : at + 1] == "]":
            break
        if text[at : at + 1] != ",":
            raise _unclosed(path, text, at, index)
        at = _after_blank(text, at + 1)
    _check_rest(path, text, at + 1, wrapped)


def _broken(path: Path, text: str, error: ValueError, start: int, index: int) -> DataError:
    at = error.pos if isinstance(error, json.JSONDecodeError) else start
    reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
    place = f"{path}, line {text.count(chr(10), 0, at) + 1} (array index {index})"
    rest = text[at:].strip()
    if reason.startswith("Unterminated") or not rest or (rest.isalnum() and len(rest) < len("false")):
        return DataError(f"{place}: the file breaks off inside this element ({reason}); fetch it again.")
    return DataError(f"{place}: not valid JSON ({reason}); {NEXT_STEP}.")


def _unclosed(path: Path, text: str, at: int, elements: int) -> DataError:
    place = f"{path}, line {text.count(chr(10), 0, at) + 1} (after array index {elements - 1})"
    if not text[at:].strip():
        return DataError(f"{place}: the file breaks off before the array is closed; fetch it again.")
    return DataError(f"{place}: not valid JSON (expected ',' or ']', found {text[at]!r}); {NEXT_STEP}.")


def _check_rest(path: Path, text: str, at: int, wrapped: bool) -> None:
    """What follows the array: nothing, or the other keys and the '}' of the object around it."""
    rest = text[at:].strip()
    try:
        whole = bool(json.loads('{"rows": 0' + rest)) if wrapped else not rest
    except ValueError:
        whole = False
    if not whole:
        line = text.count("\n", 0, at) + 1
        found = "the file breaks off" if not rest else f"unexpected text {rest[:30]!r}"
        raise DataError(f"{path}, line {line}: {found} after the array of rows; fetch it again.")


def read_mapping(path: Path, text: str) -> dict[str, Any]:
    """A document that is one JSON object. Raises DataError with file and line."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: not valid JSON ({error.msg}); fetch it again.") from None
    if not isinstance(value, dict):
        raise DataError(f"{path} holds {type(value).__name__}, not an object of rows by id; name the right file.")
    return value


def _after_blank(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at
