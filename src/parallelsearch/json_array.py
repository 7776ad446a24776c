"""The elements of a JSON array one by one, each with the line it begins on; memory stays at one element.

Python's decoder reads a whole document and knows no line but that of a fault; a fault in the meaning of an element
(an empty question) needs the line as well, and a corpus may be larger than memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from parallelsearch.errors import DataError

WRAPPERS = ("Data", "data", "queries")  # keys under which a published file keeps its rows
REPAIR = "correct that row or fetch the file again"
_CHUNK = 1 << 16  # characters
_LONGEST_CUT = 8  # of a token that a chunk's end tears: a fault so near to the end may be none
_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\r\n]*")

Element = tuple[int, int, dict[str, Any]]  # index from 0, line from 1, fields


def array_elements(path: Path, stream: TextIO) -> Iterator[Element] | None:
    """The objects of the array of rows in `stream`: the document itself, or the value of a key in WRAPPERS.

    None when the document is neither. The elements raise DataError with file, line and array index for one that is
    broken or no object, a file that breaks off, and text after the array that does not close it properly.
    """
    window = _Window(stream)
    wrapped = _enter(window)
    return None if wrapped is None else _elements(path, window, wrapped)


class _Window:
    """What has been read of a text stream from the start of the current element on; `at` is the reading position."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.text = ""
        self.at = self._start = 0
        self._start_line = 1

    def more(self) -> bool:
        """Reads on, twice as far when the element is a long one; False at the end of the stream."""
        chunk = self._stream.read(max(_CHUNK, len(self.text) - self._start))
        if chunk:
            self.text, self.at, self._start = self.text[self._start :] + chunk, self.at - self._start, 0
        return bool(chunk)

    def line_of(self, position: int) -> int:
        return self._start_line + self.text.count("\n", self._start, position)

    def begin(self) -> int:
        """Skips white space; an element begins here, and nothing before it is needed any more. Returns its line."""
        self.peek()
        self._start_line, self._start = self.line_of(self.at), self.at
        return self._start_line

    def peek(self) -> str:
        """The next character that is not white space, '' at the end."""
        while True:
            match = _BLANK.match(self.text, self.at)
            self.at = match.end() if match else self.at
            if self.at < len(self.text) or not self.more():
                return self.text[self.at : self.at + 1]

    def value(self) -> Any:
        """The JSON value that begins here. Raises ValueError, whose `pos` is a position in `text`."""
        self.peek()
        while True:
            try:
                value, self.at = _DECODER.raw_decode(self.text, self.at)
                return value
            except ValueError as error:
                if not (_may_be_cut(self.text, error) and self.more()):
                    raise

    def rest(self) -> str:
        return self.text[self.at :] + self._stream.read()


def _may_be_cut(text: str, error: ValueError) -> bool:
    if not isinstance(error, json.JSONDecodeError):
        return False
    return error.msg.startswith("Unterminated") or len(text[error.pos :].strip()) < _LONGEST_CUT


def _enter(window: _Window) -> bool | None:
    """Goes behind the '[' that opens the rows. True when an object stands around them, None without an array."""
    if window.begin() and window.peek() == "[":
        window.at += 1
        return False
    if window.peek() != "{":
        return None
    try:
        while window.peek() and window.peek() in "{,":
            window.at += 1
            key = window.value()
            if window.peek() != ":":
                return None
            window.at += 1
            if key in WRAPPERS and window.peek() == "[":
                window.at += 1
                return True
            window.value()
    except ValueError:
        return None
    return None


def _elements(path: Path, window: _Window, wrapped: bool) -> Iterator[Element]:
    index = 0
    while window.peek() != "]" or index:
        line = window.begin()
        try:
            fields = window.value()
        except ValueError as error:
            raise _broken(path, window, error, index) from None
        if not isinstance(fields, dict):
            place = f"{path}, line {line} (array index {index})"
            raise DataError(f"{place}: {type(fields).__name__} instead of an object; {REPAIR}.")
        yield index, line, fields
        index += 1
        if window.peek() == "]":
            break
        if window.peek() != ",":
            raise _unclosed(path, window, index)
        window.at += 1
    window.at += 1
    _check_rest(path, window, wrapped)


def _broken(path: Path, window: _Window, error: ValueError, index: int) -> DataError:
    at = error.pos if isinstance(error, json.JSONDecodeError) else window.at
    reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
    place = f"{path}, line {window.line_of(at)} (array index {index})"
    rest = window.text[at:].strip()
    if reason.startswith("Unterminated") or not rest or (rest.isalnum() and len(rest) < len("false")):
        return DataError(f"{place}: the file breaks off inside this element ({reason}); fetch it again.")
    return DataError(f"{place}: not valid JSON ({reason}); {REPAIR}.")


def _unclosed(path: Path, window: _Window, elements: int) -> DataError:
    place = f"{path}, line {window.line_of(window.at)} (after array index {elements - 1})"
    found = window.peek()
    if not found:
        return DataError(f"{place}: the file breaks off before the array is closed; fetch it again.")
    return DataError(f"{place}: not valid JSON (expected ',' or ']', found {found!r}); {REPAIR}.")


def _check_rest(path: Path, window: _Window, wrapped: bool) -> None:
    """What follows the array: nothing, or the other keys and the '}' of the object around it."""
    line = window.line_of(window.at)
    rest = window.rest().strip()
    try:
        whole = bool(json.loads('{"rows": 0' + rest)) if wrapped else not rest
    except ValueError:
        whole = False
    if not whole:
        found = "the file breaks off" if not rest else f"unexpected text {rest[:30]!r}"
        raise DataError(f"{path}, line {line}: {found} after the array of rows; fetch it again.")
