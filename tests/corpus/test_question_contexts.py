"""The shapes in which question files bring their paragraphs along, read alike by corpora and questions."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parallelsearch.columns import rows_of
from parallelsearch.corpus.passages import build_corpus
from parallelsearch.corpus.raw_file import RawFile
from parallelsearch.corpus.sources import SOURCES
from parallelsearch.errors import DataError
from parallelsearch.questions.reader import read_file

PARAGRAPHS = [("Olm", "Olm was founded in 1201. It lies on the Ost."), ("Ryle", "Ryle was founded in 1400.")]
SENTENCES = [["Olm was founded in 1201.", " It lies on the Ost."], ["Ryle was founded in 1400."]]
TITLES = ["Olm", "Ryle"]
ROW = {"id": "h1", "question": "Which is older, Olm or Ryle?", "answer": "Olm", "type": "comparison"}
LISTS = [["Olm", SENTENCES[0]], ["Ryle", SENTENCES[1]]]
FACTS = {"title": TITLES, "sent_id": [0, 0]}
COLUMNS = {"title": TITLES, "sentences": SENTENCES}


def flashrag(metadata: Any) -> dict[str, Any]:
    return {"id": "dev_0", "question": ROW["question"], "golden_answers": ["Olm"], "metadata": metadata}


SHAPES: dict[str, dict[str, Any]] = {
    "lists": {
        **ROW,
        "supporting_facts": [["Olm", 0], ["Ryle", 0]],
        "context": LISTS,
    },
    "columns": {**ROW, "supporting_facts": FACTS, "context": COLUMNS},
    "columns with content": {**ROW, "supporting_facts": FACTS, "context": {"title": TITLES, "content": SENTENCES}},
    "objects with sentences": {
        **ROW,
        "supporting_facts": FACTS,
        "context": [{"title": title, "sentences": sentences} for title, sentences in LISTS],
    },
    "spelled as JSON": {
        **ROW,
        "supporting_facts": json.dumps([["Olm", 0], ["Ryle", 1]]),
        "context": json.dumps(LISTS),
    },
    "metadata": flashrag({"type": "comparison", "supporting_facts": FACTS, "context": COLUMNS}),
    "metadata as JSON": flashrag(json.dumps({"type": "comparison", "supporting_facts": FACTS, "context": COLUMNS})),
}


@pytest.mark.parametrize("parquet", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_gives_the_same_paragraphs_and_titles(tmp_path: Path, shape: str, parquet: bool) -> None:
    if parquet and shape == "lists":
        pytest.skip("parquet has no lists of mixed types")
    file = written(tmp_path, [SHAPES[shape]], parquet)
    assert list(SOURCES["qa_contexts"](RawFile(file))) == PARAGRAPHS
    (question,) = read_file("hotpotqa", file).questions
    assert (question.supporting_titles, question.structure) == (("Olm", "Ryle"), "parallel")


def written(folder: Path, rows: list[dict[str, Any]], parquet: bool) -> Path:
    file = folder / "rows"
    if parquet:
        pq.write_table(pa.Table.from_pylist(rows), file)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def musique(columns: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """A row as MuSiQue's authors publish it, and as FlashRAG keeps it, with lists of objects or with columns."""
    paragraphs: Any = [
        {"idx": n, "title": title, "paragraph_text": text, "is_supporting": True}
        for n, (title, text) in enumerate(PARAGRAPHS)
    ]
    steps: Any = [{"id": n, "question": f"#{n}", "answer": "x", "paragraph_support_idx": n} for n in range(2)]
    supported: Any = [{**step, "support_paragraph": p} for step, p in zip(steps, paragraphs, strict=True)]
    if columns:
        paragraphs, steps, supported = (
            {name: [row[name] for row in rows] for name in rows[0]} for rows in (paragraphs, steps, supported)
        )
    row = {"id": "2hop__4_2", "question": "Who?", "answer": "Ada Lund", "answer_aliases": [], "answerable": True}
    authors = {**row, "paragraphs": paragraphs, "question_decomposition": steps}
    metadata = {"answer_aliases": [], "answerable": True, "question_decomposition": supported}
    return authors, {"id": "2hop__4_2", "question": "Who?", "golden_answers": ["Ada Lund"], "metadata": metadata}


@pytest.mark.parametrize("parquet", [False, True])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("copy", [0, 1])
def test_musique_as_published_and_as_flashrag_keeps_it(tmp_path: Path, copy: int, columns: bool, parquet: bool) -> None:
    file = written(tmp_path, [musique(columns)[copy]], parquet)
    assert list(SOURCES["qa_contexts"](RawFile(file))) == PARAGRAPHS
    (question,) = read_file("musique", file).questions
    assert (question.supporting_titles, question.hops, question.type) == (("Olm", "Ryle"), 2, "2hop")


def test_users_files_in_columns_are_read_by_both(shared_data: Path, tmp_path: Path) -> None:
    for dataset, titles in (("hotpotqa", ("Olm", "Ryle")), ("musique", ("Green", "Joren Falk"))):
        file = shared_data / "field2" / f"columns_{dataset}.jsonl"
        assert build_corpus("qa_contexts", file, tmp_path / dataset)["rows"] == 2
        (question,) = read_file(dataset, file).questions
        assert question.supporting_titles == titles
        assert {title for title, _ in SOURCES["qa_contexts"](RawFile(file))} == set(titles)


def test_the_official_questions_in_columns_and_parquet_give_the_same_corpus(shared_data: Path, tmp_path: Path) -> None:
    official = shared_data / "raw" / "hotpotqa_official_100.json.gz"
    rows = json.loads(gzip.decompress(official.read_bytes()))[:30]
    for row in rows:
        row["context"] = {"title": [t for t, _ in row["context"]], "sentences": [s for _, s in row["context"]]}
        row["supporting_facts"] = {"title": [t for t, _ in row["supporting_facts"]]}
    file = written(tmp_path, rows, parquet=True)
    found = list(SOURCES["qa_contexts"](RawFile(file)))
    assert found == list(SOURCES["qa_contexts"](RawFile(official)))[: len(found)] and len(found) > 200
    assert [q.supporting_titles for q in read_file("hotpotqa", file).questions] == [
        q.supporting_titles for q in read_file("hotpotqa", official, limit=30).questions
    ]


def test_columns_become_rows_only_where_they_are_of_one_length() -> None:
    nested = {"a": [1, 2], "b": {"c": [3, 4], "d": {"e": [5, 6]}}}
    assert rows_of(nested) == [{"a": 1, "b": {"c": 3, "d": {"e": 5}}}, {"a": 2, "b": {"c": 4, "d": {"e": 6}}}]
    for other in ({"a": [1], "b": [1, 2]}, {"a": 1}, {"a": [1], "b": {"c": 1}}, "[not JSON", "text", None, [1]):
        assert rows_of(other) == other


@pytest.mark.parametrize(
    ("context", "fault"),
    [
        ({"title": ["Olm"], "sentences": []}, "the context is dict, not a list or columns of one length"),
        ("Olm", "the context is str, not a list or columns of one length"),
        ({"title": ["Olm"], "sentences": [[1]]}, "paragraph 1: a sentence is no text"),
        ({"title": [None], "sentences": [["a"]]}, "paragraph 1: 'title' is NoneType, not a string"),
        (None, "no field 'context or contexts or paragraphs'"),
    ],
)
def test_what_is_none_of_them_is_refused_with_its_place(tmp_path: Path, context: Any, fault: str) -> None:
    file = written(tmp_path, [{**ROW, "context": context}], parquet=False)
    with pytest.raises(DataError) as refusal:
        list(SOURCES["qa_contexts"](RawFile(file)))
    assert str(refusal.value).startswith(f"{file}, line 1") and fault in str(refusal.value)


def test_a_broken_parquet_file_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, [SHAPES["columns"]], parquet=True)
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(DataError, match="is a broken or cut-off parquet file"):
        list(SOURCES["qa_contexts"](RawFile(file)))


@pytest.mark.parametrize("source", ["own", "geoworld", "dpr", "qa_contexts"])
@pytest.mark.parametrize("form", ["lines", "array", "packed", "appended"])
def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path, source: str, form: str) -> None:
    rows = [json.dumps({"title": title, "text": text}) for title, text in PARAGRAPHS]
    mark, file = "\ufeff", tmp_path / "rows"
    if form == "array" and source in ("geoworld", "dpr"):
        pytest.skip("this source is JSON lines alone")
    text = mark + (f"[{','.join(rows)}]" if form == "array" else ("\n" + mark * (form == "appended")).join(rows))
    file.write_bytes(gzip.compress(text.encode()) if form == "packed" else text.encode())
    assert list(SOURCES[source](RawFile(file))) == PARAGRAPHS


def test_users_files_with_a_byte_order_mark_and_a_table_are_read(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "field2"
    assert list(SOURCES["wiki18"](RawFile(folder / "bom_contents.jsonl"))) == [("Olm", "Olm is a town.")]
    assert [title for title, _ in SOURCES["own"](RawFile(folder / "bom_own.jsonl"))] == ["Olm", "Ryle"]
    (tmp_path / "p.tsv").write_text("\ufeffid\ttext\ttitle\n1\tOlm is a town.\tOlm\n", encoding="utf-8")
    assert list(SOURCES["dpr"](RawFile(tmp_path / "p.tsv"))) == [("Olm", "Olm is a town.")]
    (tmp_path / "u.jsonl").write_text('{"title": "Olm", "text": "x"}', encoding="utf-16")
    with pytest.raises(DataError, match=r"u\.jsonl is UTF-16; convert it to UTF-8\."):
        list(SOURCES["own"](RawFile(tmp_path / "u.jsonl")))
