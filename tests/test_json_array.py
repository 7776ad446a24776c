"""JSON arrays element by element: what Python's own decoder says is the authority, whatever a chunk tears apart."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallelsearch import json_array
from parallelsearch.errors import DataError
from parallelsearch.json_array import array_elements

PATH = Path("rows.json")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
ROWS = st.lists(st.dictionaries(st.text(max_size=4), VALUES, max_size=4), max_size=6)


def read(text: str) -> list[dict]:
    elements = array_elements(PATH, io.StringIO(text))
    assert elements is not None
    return [fields for _, _, fields in elements]


@given(rows=ROWS, indent=st.sampled_from([None, 0, 2]), ascii=st.booleans(), chunk=st.integers(1, 40))
def test_any_chunk_gives_the_elements_that_the_decoder_gives(
    rows: list, indent: int | None, ascii: bool, chunk: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_array, "_CHUNK", chunk)
        assert read(json.dumps(rows, indent=indent, ensure_ascii=ascii)) == rows
        wrapped = json.dumps({"version": [1, {"Data": 2}], "Data": rows, "split": "dev"}, indent=indent)
        assert read(wrapped) == rows


@given(rows=ROWS.filter(bool), cut=st.floats(0.05, 0.99), chunk=st.integers(1, 40))
def test_a_file_that_breaks_off_anywhere_is_refused(rows: list, cut: float, chunk: int) -> None:
    whole = json.dumps(rows, indent=1)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(DataError, match=r"^rows\.json, line \d+"):
        patch.setattr(json_array, "_CHUNK", chunk)
        read(whole[: max(1, int(len(whole) * cut))])


def test_each_element_has_the_line_it_begins_on() -> None:
    text = '[\n {"a": 1},\n\n {"a":\n  2}, {"a": 3}\n]\n'
    elements = array_elements(PATH, io.StringIO(text))
    assert elements is not None
    assert [(index, line) for index, line, _ in elements] == [(0, 2), (1, 4), (2, 5)]


def test_what_is_no_array_of_rows_is_left_to_others() -> None:
    for text in ("", "  \n", '{"a": 1}\n{"a": 2}\n', "question,answer\n", '{"a": [1]}', '{"a" 1}'):
        assert array_elements(PATH, io.StringIO(text)) is None


def test_memory_stays_at_one_element() -> None:
    """The stream is read no more than a chunk ahead of the element that is asked for."""
    text = json.dumps([{"number": number, "text": "x" * 1000} for number in range(1000)])
    stream = io.StringIO(text)
    elements = array_elements(PATH, stream)
    assert elements is not None
    for index, _, fields in elements:
        assert fields["number"] == index
        assert stream.tell() <= (index + 1) * 1040 + 2 * 65_536
