"""Rows of a raw file, in whichever of the published layouts it comes: JSON lines, a JSON array, a table, parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

from parallelsearch.csv_rows import csv_rows
from parallelsearch.errors import DataError
from parallelsearch.json_array import Element, array_elements
from parallelsearch.questions.row import NEXT_STEP, Row
from parallelsearch.questions.source import PARQUET, as_text, read_bytes


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a file in order, its layout told from its content, gzip or not.

    JSON lines (blank lines are skipped); a JSON array of objects, also inside an object (TriviaQA's "Data"); CSV or TSV
    with a header; parquet. Raises DataError with file, line (row in parquet) and reason at the first row that is broken
    or cut off, and for a file in no such layout or without rows.
    """
    path = Path(path)
    data = read_bytes(path)
    if data.startswith(PARQUET):
        rows = _parquet_rows(path, data)
    else:
        text = as_text(path, data)
        elements = array_elements(path, io.StringIO(text, newline="\n"))
        if elements is not None:
            rows = _array_rows(path, elements)
        elif text.lstrip().startswith("{"):
            rows = _json_lines(path, text)
        else:
            rows = _table_rows(path, text)
    return _some(path, rows)


def _some(path: Path, rows: Iterator[Row]) -> Iterator[Row]:
    empty = True
    for row in rows:
        empty = False
        yield row
    if empty:
        raise DataError(f"{path} holds no rows; fetch it again.")


def _array_rows(path: Path, elements: Iterator[Element]) -> Iterator[Row]:
    for index, line, fields in elements:
        yield Row(path, index, fields, line, in_array=True)


def _json_lines(path: Path, text: str) -> Iterator[Row]:
    index = 0
    for number, line in enumerate(io.StringIO(text, newline="\n"), start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line.lstrip("\ufeff"))  # of a file that was appended to another one
        except ValueError as error:
            if number == 1 and _is_one_object(text):
                raise DataError(
                    f"{path} is a single JSON object without a list of rows; name the file with one row a question."
                ) from None
            if not line.endswith("\n"):
                raise DataError(
                    f"{path}, line {number}: the last line breaks off ({_reason(error)}), so the file is incomplete;"
                    " fetch it again."
                ) from None
            raise DataError(f"{path}, line {number}: not valid JSON ({_reason(error)}); {NEXT_STEP}.") from None
        if not isinstance(fields, dict):
            raise DataError(f"{path}, line {number}: {type(fields).__name__} instead of an object; {NEXT_STEP}.")
        yield Row(path, index, fields, number)
        index += 1


def _reason(error: ValueError) -> str:
    return f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)


def _is_one_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _table_rows(path: Path, text: str) -> Iterator[Row]:
    first = text.lstrip("\r\n").split("\n", 1)[0]
    delimiter = "\t" if "\t" in first else max(",;", key=first.count)  # ';' is what some spreadsheets call CSV
    if delimiter not in first:
        raise DataError(
            f"{path} is neither JSON nor a table with a header (it begins {first[:40]!r}); name a question file."
        )
    table = csv_rows(io.StringIO(text, newline=""), delimiter)
    header: list[str] = []
    begin, index = 1, 0
    try:
        for cells in table:
            line, begin = begin, table.line_num + 1
            if not cells:
                continue
            if not header:
                header = [cell.strip() for cell in cells]
                continue
            if len(cells) != len(header):
                cut = " and ends the file, which may be cut off" if _ends_open(text, table.line_num) else ""
                raise DataError(
                    f"{path}, line {line}: has {len(cells)} columns where the header has {len(header)}{cut};"
                    f" {NEXT_STEP}."
                )
            yield Row(path, index, dict(zip(header, cells, strict=True)), line)
            index += 1
    except csv.Error as error:
        raise DataError(f"{path}, line {begin}: broken row ({error}); {NEXT_STEP}.") from None


def _ends_open(text: str, line: int) -> bool:
    return not text.endswith("\n") and line >= text.count("\n") + 1


def _parquet_rows(path: Path, data: bytes) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(io.BytesIO(data))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is a broken or cut-off parquet file ({error}); fetch it again.") from None
    for index, fields in enumerate(table.to_pylist()):
        yield Row(path, index, fields)
