"""Rows of CSV and TSV files whose cells may hold whole texts."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _csv import Reader

LONGEST_CELL = 2**24  # characters; csv's own limit of 131,072 is less than a long article


def csv_rows(lines: Iterable[str], delimiter: str) -> Reader:
    """A csv.reader of `lines`. Iterating raises csv.Error for a broken row and a cell above LONGEST_CELL."""
    csv.field_size_limit(LONGEST_CELL)  # of the whole process: csv knows no other
    return csv.reader(lines, delimiter=delimiter, strict=True)
