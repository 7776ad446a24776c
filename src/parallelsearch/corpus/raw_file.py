"""Raw input files, plain, gzip or bzip2, as rows that know their place, so that every fault names file and line."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from parallelsearch.csv_rows import csv_rows
from parallelsearch.errors import DataError
from parallelsearch.json_array import array_elements
from parallelsearch.titles import page_title

GZIP_MAGIC = b"\x1f\x8b"
BZIP2_MAGIC = b"BZh"
PARQUET_MAGIC = b"PAR1"
UTF16 = (b"\xff\xfe", b"\xfe\xff")
BROKEN_PACKING = (EOFError, zlib.error, OSError)  # what gzip and bz2 raise on a truncated or damaged stream
Unpacked: TypeAlias = "io.BufferedReader[Any] | gzip.GzipFile | bz2.BZ2File"
NEXT_STEP = "repair or fetch the file again"


@dataclass(slots=True)
class RawFile:
    """A raw file on its way to passages: where it is, how it is read, and what of it was left out.

    `workers` is the number of processes that may share the work. `position` says how many bytes of the file (packed,
    if it is packed) have been read. A source counts in `read` the records it meets (rows, paragraphs or pages) and in
    `dropped`, by reason, those that give no passage.
    """

    path: Path
    workers: int = 1
    position: int = 0
    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    unread: dict[str, list[str]] = field(default_factory=dict)

    def drop(self, reason: str, title: str) -> None:
        """Counts a page that cannot be read, and notes its title."""
        self.dropped[reason] += 1
        self.unread.setdefault(reason, []).append(title)


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

    def title(self, name: str = "title") -> str:
        """The field `name` as the title of a page (see `page_title`); as `text`, it may not be empty."""
        title = page_title(self.text(name))
        if not title:
            raise DataError(f"{self.place}: '{name}' is empty; {NEXT_STEP}.")
        return title


@contextmanager
def open_bytes(raw: RawFile) -> Iterator[Unpacked]:
    """Opens a file for reading, undoing gzip or bzip2 (all streams of a multistream file) when its first bytes say so.

    A missing and an empty file are DataErrors; reading on raises BROKEN_PACKING where the packed stream is damaged.
    """
    if not raw.path.is_file():
        raise DataError(f"{raw.path} does not exist; check the path of the raw file.")
    if not raw.path.stat().st_size:
        raise DataError(f"{raw.path} is empty; {NEXT_STEP}.")
    with io.BufferedReader(_WatchedFile(raw)) as packed:
        head = packed.peek(3)
        if head.startswith(GZIP_MAGIC):
            with gzip.GzipFile(fileobj=packed) as unpacked:
                yield unpacked
        elif head.startswith(BZIP2_MAGIC):
            with bz2.BZ2File(packed) as unpacked:
                yield unpacked
        else:
            yield packed


@contextmanager
def open_text(raw: RawFile) -> Iterator[TextIO]:
    """Opens a UTF-8 file, with or without a byte-order mark, for reading, unpacked as by `open_bytes`.

    A damaged packed stream and bytes that are not UTF-8 are DataErrors that name the file.
    """
    with open_bytes(raw) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
        try:
            if stream.peek(2)[:2] in UTF16:
                raise DataError(f"{raw.path} is UTF-16; convert it to UTF-8.")
            yield text
        except BROKEN_PACKING as error:
            raise DataError(f"{raw.path} is a broken packed file ({error}); {NEXT_STEP}.") from None
        except UnicodeDecodeError as error:
            raise DataError(f"{raw.path} is not UTF-8 ({error.reason}); {NEXT_STEP}.") from None


def json_rows(raw: RawFile) -> Iterator[RawRow]:
    """Rows of a JSON-lines file; blank lines are skipped, anything but one object a line is a DataError."""
    with open_text(raw) as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                raw.read += 1
                yield _json_row(line, f"{raw.path}, line {number}")


def json_records(raw: RawFile) -> Iterator[RawRow]:
    """Rows of a JSON-lines file, or of a file that is one JSON array (as HotpotQA and 2Wiki are published)."""
    with open_text(raw) as stream:
        elements = array_elements(raw.path, stream)
        if elements is not None:
            for index, line, fields in elements:
                raw.read += 1
                yield RawRow(fields, f"{raw.path}, line {line} (array index {index})")
            return
    yield from json_rows(raw)


def records(raw: RawFile) -> Iterator[RawRow]:
    """Rows of a file as question files come: parquet, or as `json_records`."""
    with open_bytes(raw) as stream:
        parquet = stream.peek(4)[:4] == PARQUET_MAGIC
    yield from parquet_rows(raw) if parquet else json_records(raw)


def parquet_rows(raw: RawFile) -> Iterator[RawRow]:
    """Rows of a parquet file, a batch in memory at a time; a damaged one is a DataError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(raw.path) as file:
            for batch in file.iter_batches(1024):
                for fields in batch.to_pylist():
                    raw.read += 1
                    yield RawRow(fields, f"{raw.path}, row index {raw.read - 1}")
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{raw.path} is a broken or cut-off parquet file ({error}); fetch it again.") from None


def tsv_rows(raw: RawFile, columns: tuple[str, ...]) -> Iterator[RawRow]:
    """Rows of a tab-separated file whose first line names `columns`; cells may be CSV-quoted as in psgs_w100.tsv."""
    with open_text(raw) as stream:
        reader = csv_rows(stream, "\t")
        try:
            header = next(reader, [])
            if tuple(header) != columns:
                raise DataError(
                    f"{raw.path}, line 1: columns are {header}, expected {list(columns)}; check the layout."
                )
            for cells in reader:
                place = f"{raw.path}, line {reader.line_num}"
                if len(cells) != len(columns):
                    raise DataError(f"{place}: {len(cells)} cells, expected {len(columns)}; {NEXT_STEP}.")
                raw.read += 1
                yield RawRow(dict(zip(columns, cells, strict=True)), place)
        except csv.Error as error:
            raise DataError(f"{raw.path}, line {reader.line_num}: broken row ({error}); {NEXT_STEP}.") from None


class _WatchedFile(io.FileIO):
    """A file that counts the bytes that are taken from it."""

    def __init__(self, raw: RawFile) -> None:
        super().__init__(raw.path, "rb")
        self._raw = raw
        raw.position = 0

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer) or 0
        self._raw.position += count
        return count


def _json_row(line: str, place: str) -> RawRow:
    try:
        fields = json.loads(line.lstrip("\ufeff"))  # of a file that was appended to another one
    except json.JSONDecodeError as error:
        raise DataError(f"{place}: broken JSON ({error.msg} at column {error.colno}); {NEXT_STEP}.") from None
    if not isinstance(fields, dict):
        raise DataError(f"{place}: {type(fields).__name__} instead of an object; {NEXT_STEP}.")
    return RawRow(fields, place)
