"""Raw input files, plain or gzip, as rows that know their place, so that every fault names file and line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from parallelsearch.errors import DataError

GZIP_MAGIC = b"\x1f\x8b"
NEXT_STEP = "repair or fetch the file again"


@dataclass(frozen=True, slots=True)
class RawRow:
    """One record of a raw file: its fields, and the place that a fault in it is reported with."""

    fields: dict[str, Any]
    place: str

    def text(self, *names: str) -> str:
        """The first of the fields `names` that is present, stripped; missing, not a string or empty is a DataError."""
        for name in names:
            if name in self.fields:
                value = self.fields[name]
                if not isinstance(value, str):
                    raise DataError(f"{self.place}: '{name}' is {type(value).__name__}, not a string; {NEXT_STEP}.")
                if not value.strip():
                    raise DataError(f"{self.place}: '{name}' is empty; {NEXT_STEP}.")
                return value.strip()
        found = ", ".join(self.fields) or "nothing"
        raise DataError(f"{self.place}: no field '{' or '.join(names)}' (found: {found}); check the source's layout.")


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Opens a UTF-8 file for reading, undoing gzip when its first two bytes say so, whatever its name ends with.

    A missing file, a truncated gzip stream and bytes that are not UTF-8 are DataErrors that name the file.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path} does not exist; check the path of the raw file.")
    with path.open("rb") as raw:
        packed = raw.read(2) == GZIP_MAGIC
        raw.seek(0)
        stream = gzip.GzipFile(fileobj=raw) if packed else raw
        with io.TextIOWrapper(stream, encoding="utf-8", newline="") as text:
            try:
                yield text
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise DataError(f"{path} is a broken gzip file ({error}); {NEXT_STEP}.") from None
            except UnicodeDecodeError as error:
                raise DataError(f"{path} is not UTF-8 ({error.reason}); {NEXT_STEP}.") from None


def json_rows(path: Path) -> Iterator[RawRow]:
    """Rows of a JSON-lines file; blank lines are skipped, anything but one object a line is a DataError."""
    with open_text(path) as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                yield _json_row(line, f"{path}, line {number}")


def json_records(path: Path) -> Iterator[RawRow]:
    """Rows of a JSON-lines file, or of a file that is one JSON array (as HotpotQA and 2Wiki are published)."""
    with open_text(path) as stream:
        head = stream.read(64).lstrip()
    if not head.startswith("["):
        yield from json_rows(path)
        return
    with open_text(path) as stream:
        try:
            records = json.load(stream)
        except json.JSONDecodeError as error:
            raise DataError(f"{path}, line {error.lineno}: broken JSON ({error.msg}); {NEXT_STEP}.") from None
    for number, record in enumerate(records, start=1):
        if not isinstance(record, dict):
            raise DataError(f"{path}, record {number} is {type(record).__name__}, not an object; {NEXT_STEP}.")
        yield RawRow(record, f"{path}, record {number}")


def tsv_rows(path: Path, columns: tuple[str, ...]) -> Iterator[RawRow]:
    """Rows of a tab-separated file whose first line names `columns`; cells may be CSV-quoted as in psgs_w100.tsv."""
    with open_text(path) as stream:
        reader = csv.reader(stream, delimiter="\t", strict=True)
        try:
            header = next(reader, [])
            if tuple(header) != columns:
                raise DataError(f"{path}, line 1: columns are {header}, expected {list(columns)}; check the layout.")
            for cells in reader:
                place = f"{path}, line {reader.line_num}"
                if len(cells) != len(columns):
                    raise DataError(f"{place}: {len(cells)} cells, expected {len(columns)}; {NEXT_STEP}.")
                yield RawRow(dict(zip(columns, cells, strict=True)), place)
        except csv.Error as error:
            raise DataError(f"{path}, line {reader.line_num}: broken row ({error}); {NEXT_STEP}.") from None


def _json_row(line: str, place: str) -> RawRow:
    try:
        fields = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{place}: broken JSON ({error.msg} at column {error.colno}); {NEXT_STEP}.") from None
    if not isinstance(fields, dict):
        raise DataError(f"{place}: {type(fields).__name__} instead of an object; {NEXT_STEP}.")
    return RawRow(fields, place)
