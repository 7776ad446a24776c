"""Tables as users' programs write them: long cells, semicolons."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from parallelsearch.config import QuestionLayout
from parallelsearch.corpus.raw_file import RawFile
from parallelsearch.corpus.sources import SOURCES
from parallelsearch.csv_rows import LONGEST_CELL, csv_rows
from parallelsearch.errors import DataError
from parallelsearch.questions.reader import read_file

LONG = "word " * 40_000  # longer than csv reads by itself


def test_a_cell_may_be_as_long_as_a_text(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text(f"id\ttext\ttitle\n1\t{LONG}\tOlm\n")
    assert list(SOURCES["dpr"](RawFile(tmp_path / "p.tsv"))) == [("Olm", LONG.strip())]
    (tmp_path / "q.csv").write_text(f"question,answers,type,note\nWho?,Ann,single,{LONG}\n")
    assert len(read_file("own", tmp_path / "q.csv", layout=QuestionLayout()).questions) == 1


def test_a_quotation_mark_that_is_never_closed_does_not_swallow_a_file_of_any_size() -> None:
    lines = ['"never closed\n', *["x" * 2**20 + "\n"] * 17]
    with pytest.raises(csv.Error, match="field limit"):
        list(csv_rows(lines, ","))
    assert LONGEST_CELL < 17 * 2**20


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_is_told_from_the_header(tmp_path: Path, delimiter: str) -> None:
    """Spreadsheets of many countries write semicolons where a comma is the decimal sign."""
    with (tmp_path / "q").open("w", newline="") as stream:
        rows = [["question", "answers", "type"], ["Which, Olm; Ryle\t?", "Olm, of course", "parallel"]]
        csv.writer(stream, delimiter=delimiter).writerows(rows)
    (question,) = read_file("own", tmp_path / "q", layout=QuestionLayout()).questions
    assert (question.text, question.golden_answers) == ("Which, Olm; Ryle\t?", ("Olm, of course",))


def test_a_file_without_any_delimiter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "q").write_text("question\nWho?\n")
    with pytest.raises(DataError, match="neither JSON nor a table with a header"):
        read_file("own", tmp_path / "q", layout=QuestionLayout())
