"""Real files: row and type counts of their provenance record, and two independent conversions that must agree."""

from __future__ import annotations

import hashlib
import html
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from parallelsearch.errors import DataError
from parallelsearch.questions.commands import app
from parallelsearch.questions.reader import Skip, read_file
from parallelsearch.questions.store import read_provenance, read_questions
from parallelsearch.records import Question

SharedRows = Callable[[str], list[dict[str, Any]]]

# file, data set, skip, questions, types, left out, layout; numbers from PROVENANCE.md beside the files
NORMALISED = [
    ("hotpotqa.jsonl.gz", "hotpotqa", None, 1576, {"bridge": 1223, "comparison": 353}, {}),
    (
        "2wikimultihopqa.jsonl.gz", "2wikimultihopqa", Skip.UNTYPED, 700,
        {"compositional": 288, "comparison": 235, "bridge_comparison": 148, "inference": 29}, {"untyped": 100},
    ),
    (
        "musique.jsonl.gz", "musique", Skip.UNANSWERABLE, 349, None, {"unanswerable": 45},
    ),
    ("bamboogle.jsonl.gz", "bamboogle", None, 125, {"": 125}, {}),
    ("nq.jsonl.gz", "nq", None, 1000, {"": 1000}, {}),
    ("triviaqa.jsonl.gz", "triviaqa", None, 1000, {"": 1000}, {}),
    (
        "popqa.jsonl.gz", "popqa", None, 1000,
        {
            "screenwriter": 150, "director": 139, "genre": 112, "author": 99, "producer": 99, "composer": 71,
            "capital": 48, "country": 48, "sport": 46, "father": 45, "place of birth": 39, "capital of": 37,
            "occupation": 29, "religion": 16, "mother": 15, "color": 7,
        }, {},
    ),
    (
        "multihop_rag.jsonl.gz", "multihop_rag", None, 500,
        {"inference_query": 161, "comparison_query": 154, "temporal_query": 114, "null_query": 71}, {},
    ),
    ("extra/hotpotqa_dev_qa_only.jsonl.gz", "hotpotqa", None, 7405, {"bridge": 5918, "comparison": 1487}, {}),
    ("extra/musique_dev_qa_only.jsonl.gz", "musique", None, 2417, {"": 2417}, {}),
    ("extra/nq_open_dev_full.jsonl.gz", "nq", None, 3610, {"": 3610}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("file", "dataset", "skip", "count", "types", "left_out"), NORMALISED)
def test_normalised_files(
    shared_data: Path, shared_rows: SharedRows, file: str, dataset: str, skip: Skip | None, count: int,
    types: dict[str, int] | None, left_out: dict[str, int],
) -> None:  # fmt: skip
    reading = read_file(dataset, shared_data / file, skip=[skip] if skip else [])
    assert (len(reading.questions), reading.left_out, reading.layout) == (count, left_out, "normalised")
    if types is not None:
        assert Counter(question.type for question in reading.questions) == types
    rows = {row["id"]: row for row in shared_rows(file)}
    assert len(rows) == count + sum(left_out.values())
    for question in reading.questions:
        row = rows[question.qid]
        assert set(question.golden_answers) <= {undone(answer) for answer in row["golden_answers"]}
        assert len(question.golden_answers) == len({undone(answer) for answer in row["golden_answers"]})
        assert question.text == undone(row["question"]) != ""
        assert (question.hops, question.split) == (row.get("hops"), row["split"])


def undone(text: str) -> str:
    """What the clean-up should give, said in another way: the only quoted cells in these files have doubled quotes."""
    text = text.strip()
    if '""' in text and text.startswith('"') and text.endswith('"'):
        text = text[1:-1].replace('""', '"')
    return html.unescape(text)


def test_the_papers_hotpotqa_subsets(shared_data: Path) -> None:
    """Appendix A.2, table 5: 1,487 parallel and 5,918 sequential questions in HotpotQA dev."""
    questions = read_file("hotpotqa", shared_data / "extra" / "hotpotqa_dev_qa_only.jsonl.gz").questions
    assert Counter(question.structure.value for question in questions) == {"parallel": 1487, "sequential": 5918}


def test_musique_reasoning_graphs(shared_data: Path, shared_rows: SharedRows) -> None:
    types = {"2hop": 270, "3hop1": 63, "4hop1": 33, "3hop2": 15, "4hop3": 9, "4hop2": 4}
    rows = shared_rows("musique.jsonl.gz")
    assert Counter(row["type"] for row in rows) == types
    kept = read_file("musique", shared_data / "musique.jsonl.gz", skip=[Skip.UNANSWERABLE]).questions
    assert {question.qid for question in kept} == {row["id"] for row in rows if not row.get("note")}


@pytest.mark.parametrize(
    ("file", "dataset", "line", "hint"),
    [
        ("2wikimultihopqa.jsonl.gz", "2wikimultihopqa", 701, "--skip untyped"),
        ("extra/2wikimultihopqa_dev_qa_only.jsonl.gz", "2wikimultihopqa", 1, "--skip untyped"),
        ("musique.jsonl.gz", "musique", 201, "--skip unanswerable"),
    ],
)
def test_files_with_doubtful_rows_are_refused(
    shared_data: Path, shared_rows: SharedRows, file: str, dataset: str, line: int, hint: str
) -> None:
    rows = shared_rows(file)
    doubtful = [row["type"] is None if hint.endswith("untyped") else "note" in row for row in rows]
    assert doubtful.index(True) + 1 == line
    with pytest.raises(DataError) as refused:
        read_file(dataset, shared_data / file)
    assert str(refused.value).startswith(f"{shared_data / file}, line {line}: ") and hint in str(refused.value)


def test_a_file_without_any_type_leaves_nothing(shared_data: Path) -> None:
    file = shared_data / "extra" / "2wikimultihopqa_dev_qa_only.jsonl.gz"
    with pytest.raises(DataError, match=r"no question is left \(left out: 12576 untyped\)"):
        read_file("2wikimultihopqa", file, skip=[Skip.UNTYPED])


def test_frames_is_no_data_set_of_ours(shared_data: Path) -> None:
    with pytest.raises(DataError, match="line 1: the row is of data set 'frames', not nq"):
        read_file("nq", shared_data / "extra" / "frames.jsonl.gz")


RAW = [
    ("hotpotqa_official_100.json.gz", "hotpotqa", "authors", 100, {"bridge": 83, "comparison": 17}),
    ("hotpotqa_official_train_100.json.gz", "hotpotqa", "authors", 100, {"bridge": 78, "comparison": 22}),
    (
        "2wikimultihopqa_official_200.json.gz", "2wikimultihopqa", "authors", 200,
        {"comparison": 73, "compositional": 61, "bridge_comparison": 56, "inference": 10},
    ),
    ("musique_official_train_100.json.gz", "musique", "authors", 100, None),
    ("triviaqa_official_sample.json.gz", "triviaqa", "authors", 1, {"": 1}),
    ("flashrag_nq_test_17.jsonl.gz", "nq", "flashrag", 17, {"": 17}),
    ("flashrag_nq_test_1000.jsonl.gz", "nq", "flashrag", 1000, {"": 1000}),
    ("flashrag_popqa_test_1000.jsonl.gz", "popqa", "flashrag", 1000, None),
    ("flashrag_triviaqa_test_1000.jsonl.gz", "triviaqa", "flashrag", 1000, {"": 1000}),
    ("verl_format_bamboogle_125.jsonl.gz", "bamboogle", "verl", 125, {"": 125}),
    ("search_r1_traces_bamboogle_base.jsonl.gz", "bamboogle", "flashrag", 125, {"": 125}),
    ("search_r1_traces_bamboogle_instruct.jsonl.gz", "bamboogle", "flashrag", 125, {"": 125}),
]  # fmt: skip


@pytest.mark.parametrize(("file", "dataset", "layout", "count", "types"), RAW)
def test_raw_files(
    shared_data: Path, file: str, dataset: str, layout: str, count: int, types: dict[str, int] | None
) -> None:
    reading = read_file(dataset, shared_data / "raw" / file)
    assert (reading.layout, len(reading.questions)) == (layout, count)
    if types is not None:
        assert Counter(question.type for question in reading.questions) == types


PAIRS = [
    ("raw/hotpotqa_official_100.json.gz", "hotpotqa", 100),
    ("raw/hotpotqa_official_train_100.json.gz", "hotpotqa", 100),
    ("raw/2wikimultihopqa_official_200.json.gz", "2wikimultihopqa", 200),
    ("raw/musique_official_train_100.json.gz", "musique", 100),
    ("raw/flashrag_nq_test_1000.jsonl.gz", "nq", 1000),
    ("raw/flashrag_popqa_test_1000.jsonl.gz", "popqa", 1000),
    ("raw/flashrag_triviaqa_test_1000.jsonl.gz", "triviaqa", 1000),
    ("raw/search_r1_traces_bamboogle_base.jsonl.gz", "bamboogle", 125),
]


@pytest.mark.parametrize(("raw", "dataset", "count"), PAIRS)
def test_the_raw_file_and_its_normalised_copy_give_the_same_questions(
    shared_data: Path, raw: str, dataset: str, count: int
) -> None:
    """The normalised files were made by other code; only the split is known to them alone."""
    copy = read_file(dataset, shared_data / f"{dataset}.jsonl.gz", skip=list(Skip)).questions
    by_id = {question.qid: question for question in copy}
    own = read_file(dataset, shared_data / raw).questions
    assert len(own) == count
    for question in own:
        assert comparable(question) == comparable(by_id[question.qid])


def comparable(question: Question) -> Question:
    """Without split; titles in any order, and those only the normalised copy has (Bamboogle has none)."""
    return replace(question, split="", supporting_titles=tuple(sorted(question.supporting_titles)))


def test_multihop_rag_in_its_two_files_equals_the_normalised_copy(shared_data: Path) -> None:
    raw = shared_data / "raw"
    own = read_file(
        "MultiHopRAG", raw / "multihop_rag_queries.json.gz", answers=raw / "multihop_rag_ground_truth.json.gz"
    ).questions
    copy = read_file("MultiHop-RAG", shared_data / "multihop_rag.jsonl.gz").questions
    assert len(own) == len(copy) == 500
    assert [replace(q, qid="", split="") for q in own] == [replace(q, qid="", split="") for q in copy]
    assert Counter(question.structure.value for question in own) == {"parallel": 154, "sequential": 161, "other": 185}
    nothing = [question for question in own if question.type == "null_query"]
    assert {question.golden_answers for question in nothing} == {("Insufficient information.",)}
    assert {question.supporting_titles for question in nothing} == {()}


def test_anomalies_of_the_real_files(shared_data: Path, shared_rows: SharedRows) -> None:
    trivia = read_file("triviaqa", shared_data / "triviaqa.jsonl.gz").questions
    quoted = [row["id"] for row in shared_rows("triviaqa.jsonl.gz") if row["question"].startswith('"')]
    by_id = {question.qid: question for question in trivia}
    assert len(quoted) == 67
    assert not any('""' in by_id[qid].text for qid in quoted)
    assert by_id["test_6233"].text == 'Who wrote "A cauliflower is nothing but a cabbage with a college education"?'
    assert max(len(question.golden_answers) for question in trivia) == 182

    repeated = [
        row["id"]
        for row in shared_rows("popqa.jsonl.gz")
        if len(set(row["golden_answers"])) < len(row["golden_answers"])
    ]
    assert len(repeated) == 11
    popqa = {question.qid: question for question in read_file("popqa", shared_data / "popqa.jsonl.gz").questions}
    assert all(len(set(popqa[qid].golden_answers)) == len(popqa[qid].golden_answers) for qid in repeated)

    bamboogle = read_file("bamboogle", shared_data / "bamboogle.jsonl.gz").questions
    assert [question.golden_answers for question in bamboogle if "VI" in question.golden_answers[0]] == [("George VI",)]

    hotpot = read_file("hotpotqa", shared_data / "hotpotqa.jsonl.gz").questions
    assert not any("&amp;" in title for question in hotpot for title in question.supporting_titles)
    raw_titles = [f["title"] for row in shared_rows("hotpotqa.jsonl.gz") for f in row["supporting_facts"]]
    assert any("&amp;" in title for title in raw_titles)


def test_a_split_of_a_file_with_several(shared_data: Path) -> None:
    """PROVENANCE.md: HotpotQA 1,376 dev and 200 train rows."""
    reading = read_file("hotpotqa", shared_data / "hotpotqa.jsonl.gz", split="dev")
    assert (len(reading.questions), reading.left_out) == (1376, {"of split train": 200})


def test_the_command_prints_counts_and_keeps_the_source_in_the_file(shared_data: Path, tmp_path: Path) -> None:
    file, out = shared_data / "2wikimultihopqa.jsonl.gz", tmp_path / "questions" / "2wikimultihopqa.dev.parquet"
    arguments = ["import", "2WikiMultiHopQA", str(file), str(out), "--skip", "untyped"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.exception
    assert result.output == (
        "700 questions of 2wikimultihopqa (normalised layout): parallel 235, sequential 317, mixed 148;"
        " left out: 100 untyped\n"
    )
    found = read_provenance(out)
    assert found.source_sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert (found.reader, found.source, found.rows) == ("2wikimultihopqa", "2wikimultihopqa.jsonl.gz", 700)
    assert found.structures == {"parallel": 235, "sequential": 317, "mixed": 148}
    assert read_questions(out) == read_file("2wiki", file, skip=[Skip.UNTYPED]).questions
    assert [path.name for path in out.parent.iterdir()] == [out.name]
