"""Rows without an answer name the splits that have some; a row that stands twice may be left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parallelsearch.config import QuestionLayout
from parallelsearch.errors import DataError
from parallelsearch.questions.reader import Skip, read_file

Write = Callable[..., Path]
CONTEXT = [["Olm", ["Olm is a town."]]]
PARAGRAPHS = [{"idx": 0, "title": "Olm", "paragraph_text": "Olm is a town."}]
UNKNOWN = {"aliases": [], "normalized_aliases": [], "value": "<unk>", "normalized_value": "<unk>", "type": ""}

# First rows of the test splits: as the authors publish them, and as `datasets` does.
TEST_SPLITS: list[tuple[str, dict[str, Any], str]] = [
    ("hotpotqa", {"_id": "a", "question": "Who?", "context": CONTEXT}, "field 'answer' is missing"),
    (
        "hotpotqa",
        {"id": "a", "question": "Who?", "answer": None, "type": None, "context": {}},
        "field 'answer' is null",
    ),
    ("2wikimultihopqa", {"_id": "a", "question": "Who?", "answer": "", "type": None}, "every answer is empty"),
    ("musique", {"id": "2hop__1_2", "question": "Who?", "paragraphs": PARAGRAPHS}, "field 'answer' is missing"),
    ("musique", {"id": "m", "question": "Who?", "golden_answers": [], "metadata": {}}, "the list of answers is empty"),
    ("triviaqa", {"Question": "Who?", "QuestionId": "q"}, "field 'Answer' is missing"),
    ("triviaqa", {"question": "Who?", "question_id": "q", "answer": UNKNOWN}, "the list of answers is empty"),
    ("nq", {"question": "Who?", "answer": []}, "the list of answers is empty"),
]


@pytest.mark.parametrize(("dataset", "row", "reason"), TEST_SPLITS, ids=[f"{d}: {r}" for d, _, r in TEST_SPLITS])
@pytest.mark.parametrize("split", [None, "test"])
def test_a_split_without_answers_is_told_which_have_some(
    write: Write, dataset: str, row: dict[str, Any], reason: str, split: str | None
) -> None:
    path = write(json.dumps(row))
    with pytest.raises(DataError) as refusal:
        read_file(dataset, path, split=split)
    sentence = str(refusal.value)
    assert sentence.startswith(f"{path}, line 1: {reason}")
    wanted = f"; import a split that is published with its answers (train and dev of {dataset}), or correct that row"
    assert wanted in sentence and sentence.endswith(".")


def test_elsewhere_the_next_step_is_the_row_itself(write: Write) -> None:
    path = write(json.dumps({"question": "Who?", "answers": "", "type": "single"}))
    with pytest.raises(DataError, match=r"every answer is empty; correct that row or fetch the file again\."):
        read_file("own", path, layout=QuestionLayout())


ROW = {"_id": "a", "question": "Which is older?", "answer": "Olm", "type": "comparison", "context": CONTEXT}


@pytest.mark.parametrize("array", [False, True])
def test_a_row_that_stands_twice_is_refused_and_can_be_left_out(write: Write, array: bool) -> None:
    again = dict(reversed(ROW.items()))  # the same fields in another order
    rows = [ROW, {**ROW, "_id": "b"}, again, {**ROW, "_id": "c"}]
    path = write(json.dumps(rows) if array else "".join(json.dumps(row) + "\n" for row in rows))
    said = "id 'a' is already that of line 1, and the rows are the same; leave such rows out with --skip repeated"
    with pytest.raises(DataError, match=said):
        read_file("hotpotqa", path)
    reading = read_file("hotpotqa", path, skip=[Skip.REPEATED])
    assert [question.qid for question in reading.questions] == ["a", "b", "c"]
    assert reading.left_out == {"repeated": 1}


def test_rows_without_ids_and_of_parquet_are_left_out_as_well(tmp_path: Path) -> None:
    rows = [{"question": f"Who is {name}?", "answer": ["Ann"]} for name in ("Olm", "Ryle", "Olm")]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "nq.parquet")
    assert len(read_file("nq", tmp_path / "nq.parquet").questions) == 3
    assert [q.qid for q in read_file("nq", tmp_path / "nq.parquet", skip=[Skip.REPEATED]).questions] == ["nq-0", "nq-1"]


@pytest.mark.parametrize("change", [{"answer": "Ryle"}, {"question": "Which is newer?"}, {"context": []}])
def test_one_id_for_two_different_rows_is_refused_whatever_is_skipped(write: Write, change: dict[str, Any]) -> None:
    path = write("\n".join(map(json.dumps, [ROW, {**ROW, **change}])))
    with pytest.raises(DataError, match=r"line 2: id 'a' is already that of line 1; correct that row"):
        read_file("hotpotqa", path, skip=list(Skip))
