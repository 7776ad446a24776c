"""Raw files: what is read, and what is said about broken ones."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from parallelsearch.corpus.raw_file import RawFile, json_records, json_rows, tsv_rows
from parallelsearch.errors import DataError

ROW = {"id": "1", "title": "Paris", "text": "Paris is the capital of France."}


def write(path: Path, text: str, packed: bool = False) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    return path


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz", "rows"])
def test_gzip_is_detected_by_content_not_by_name(tmp_path: Path, name: str, packed: bool) -> None:
    file = write(tmp_path / name, json.dumps(ROW) + "\n\n" + json.dumps(ROW), packed)
    assert [row.fields for row in json_rows(RawFile(file))] == [ROW, ROW]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (json.dumps(ROW) + "\n" + json.dumps(ROW)[:30], "line 2: broken JSON"),
        (json.dumps(ROW) + "\n[1, 2]\n", "line 2: list instead of an object"),
        ('{"title": "a"}\n', "line 1: no field 'text' (found: title)"),
        ('{"title": "a", "text": "  "}\n', "line 1: 'text' is empty"),
        ('{"title": "a", "text": null}\n', "line 1: 'text' is NoneType, not a string"),
    ],
)
def test_a_faulty_line_is_named_with_file_and_number(tmp_path: Path, text: str, fault: str) -> None:
    file = write(tmp_path / "rows.jsonl", text)
    with pytest.raises(DataError) as raised:
        for row in json_rows(RawFile(file)):
            row.text("text")
    assert str(raised.value).startswith(f"{file}, {fault}")


def test_a_truncated_gzip_file_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress("\n".join(json.dumps({**ROW, "id": n}) for n in range(500)).encode())
    file = tmp_path / "rows.jsonl.gz"
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"rows\.jsonl\.gz is a broken packed file"):
        list(json_rows(RawFile(file)))
    file.write_bytes(whole)
    assert len(list(json_rows(RawFile(file)))) == 500


def test_bytes_that_are_not_utf8_and_missing_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    with pytest.raises(DataError, match="does not exist"):
        list(json_rows(RawFile(file)))
    file.write_bytes(b'{"title": "caf\xe9", "text": "x"}\n')
    with pytest.raises(DataError, match="not UTF-8"):
        list(json_rows(RawFile(file)))


def test_one_json_array_and_json_lines_give_the_same_records(tmp_path: Path) -> None:
    lines = write(tmp_path / "a.jsonl", "\n".join([json.dumps(ROW)] * 3))
    array = write(tmp_path / "a.json", json.dumps([ROW] * 3, indent=1), packed=True)
    assert (
        [r.fields for r in json_records(RawFile(array))]
        == [r.fields for r in json_records(RawFile(lines))]
        == [ROW] * 3
    )
    broken = write(tmp_path / "b.json", json.dumps([ROW] * 3, indent=1)[:-40])
    with pytest.raises(DataError, match=r"b\.json, line 15 \(array index 2\): the file breaks off inside this element"):
        list(json_records(RawFile(broken)))


def test_tsv_cells_are_unquoted_and_short_rows_are_refused(tmp_path: Path) -> None:
    header = "id\ttext\ttitle\n"
    file = write(tmp_path / "p.tsv", header + '1\t"Aaron (""light"")\tis a prophet"\tAaron\n2\tplain\tB\n')
    rows = [row.fields for row in tsv_rows(RawFile(file), ("id", "text", "title"))]
    assert rows[0] == {"id": "1", "text": 'Aaron ("light")\tis a prophet', "title": "Aaron"}
    assert rows[1]["text"] == "plain"
    write(file, header + "1\tonly text\n")
    with pytest.raises(DataError, match=r"p\.tsv, line 2: 2 cells, expected 3"):
        list(tsv_rows(RawFile(file), ("id", "text", "title")))
    write(file, "text\tid\ttitle\n")
    with pytest.raises(DataError, match=r"p\.tsv, line 1: columns are"):
        list(tsv_rows(RawFile(file), ("id", "text", "title")))
