"""The question file: what is written is read, and what is not whole is refused."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parallelsearch.errors import DataError
from parallelsearch.questions.store import (
    PROVENANCE_KEY,
    SCHEMA,
    Provenance,
    read_provenance,
    read_questions,
    write_questions,
)
from parallelsearch.records import Question, Structure

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
QUESTIONS = st.builds(
    Question,
    qid=TEXT,
    dataset=TEXT,
    split=TEXT,
    text=TEXT,
    golden_answers=st.lists(TEXT, max_size=4).map(tuple),
    type=TEXT,
    structure=st.sampled_from(Structure),
    hops=st.none() | st.integers(0, 2**31 - 1),
    supporting_titles=st.lists(TEXT, max_size=3).map(tuple),
    supporting_ids=st.lists(st.integers(0, 2**63 - 1), max_size=3).map(tuple),
)
SOME = [
    Question(f"q{n}", "hotpotqa", "dev", f"question {n}?", ("yes", "no"), type, tag, 2, ("Ada",), (n,))
    for n, (type, tag) in enumerate([("comparison", Structure.PARALLEL), ("bridge", Structure.SEQUENTIAL)] * 50)
]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(QUESTIONS, max_size=6))
def test_round_trip(tmp_path: Path, questions: list[Question]) -> None:
    path = tmp_path / "q.parquet"
    write_questions(path, questions)
    assert read_questions(path) == questions


def test_the_file_can_be_read_without_our_code_and_is_compressed(tmp_path: Path) -> None:
    path = tmp_path / "q.parquet"
    write_questions(path, SOME)
    frame = pd.read_parquet(path)
    assert list(frame.columns) == [
        "qid", "dataset", "split", "text", "golden_answers", "type", "structure", "hops", "supporting_titles",
        "supporting_ids",
    ]  # fmt: skip
    assert frame["structure"].value_counts().to_dict() == {"parallel": 50, "sequential": 50}
    assert list(frame["golden_answers"][0]) == ["yes", "no"]
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"


def test_provenance_holds_source_and_counts(tmp_path: Path) -> None:
    path = tmp_path / "q.parquet"
    given = Provenance(reader="hotpotqa", source="dev.json", source_sha256="ab", left_out={"untyped": 3}, split="dev")
    write_questions(path, SOME, given)
    found = read_provenance(path)
    assert (found.reader, found.source, found.source_sha256, found.split) == ("hotpotqa", "dev.json", "ab", "dev")
    assert found.rows == 100 and found.left_out == {"untyped": 3}
    assert found.structures == {"parallel": 50, "sequential": 50}
    assert found.types == {"bridge": 50, "comparison": 50}


def test_the_same_questions_give_the_same_bytes(tmp_path: Path) -> None:
    write_questions(tmp_path / "a.parquet", SOME)
    write_questions(tmp_path / "b.parquet", SOME)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_every_truncation_is_refused_and_a_new_import_mends_it(tmp_path: Path) -> None:
    path = tmp_path / "q.parquet"
    write_questions(path, SOME)
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError) as refused:
            read_questions(path)
        assert str(path) in str(refused.value) and "import the questions again" in str(refused.value)
    write_questions(path, SOME)
    assert read_questions(path) == SOME


def test_damaged_pages_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "q.parquet"
    write_questions(path, SOME)
    column = pq.ParquetFile(path).metadata.row_group(0).column(3)
    data = bytearray(path.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    for at in range(start + 25, start + 65):
        data[at] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(DataError, match=r"q\.parquet is damaged"):
        read_questions(path)


def test_a_missing_file_names_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"q\.parquet is missing; make it with parallelsearch questions import"):
        read_questions(tmp_path / "q.parquet")


def test_foreign_parquet_files_are_refused_with_the_difference(tmp_path: Path) -> None:
    path = tmp_path / "q.parquet"
    write_questions(path, SOME)
    table = pq.read_table(path)
    for other, sentence in [
        (table.drop_columns(["structure", "hops"]), "it lacks the columns structure, hops"),
        (table.set_column(7, "hops", table["hops"].cast(pa.int64())), "column hops is int64, expected int32"),
        (table.append_column("level", pa.array(["hard"] * 100)), "it has the further columns level"),
        (table.replace_schema_metadata({}), "its footer does not say where it is from"),
    ]:
        pq.write_table(other, path)
        with pytest.raises(DataError) as refused:
            read_questions(path)
        assert f"{path} is no question file: {sentence}" in str(refused.value)


def test_rows_that_went_missing_and_unknown_structures_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "q.parquet"
    write_questions(path, SOME)
    table = pq.read_table(path)
    pq.write_table(table.slice(0, 99), path)
    with pytest.raises(DataError, match="has 99 rows where 100 were written"):
        read_questions(path)
    tags = pa.array(["parallel"] * 41 + ["serial"] + ["parallel"] * 58)
    pq.write_table(table.set_column(6, SCHEMA.field("structure"), tags), path)
    with pytest.raises(DataError, match="row 41: structure is 'serial', allowed are parallel, sequential"):
        read_questions(path)


def test_a_damaged_footer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "q.parquet"
    pq.write_table(SCHEMA.with_metadata({PROVENANCE_KEY: b"{}"}).empty_table(), path)
    with pytest.raises(DataError, match="has a damaged footer"):
        read_provenance(path)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "q.parquet"
    write_questions(path, SOME)
    before = path.read_bytes()
    with pytest.raises(UnicodeEncodeError):
        write_questions(path, [Question("\ud800", "nq", "dev", "q", ("a",), "", Structure.SINGLE)])
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
