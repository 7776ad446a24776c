"""Recall of supporting titles, counted by hand on four passages, and the command over two indexes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from parallelsearch.cli import main
from parallelsearch.config import Bm25Config, HybridConfig
from parallelsearch.corpus.passages import build_corpus
from parallelsearch.questions.store import write_questions
from parallelsearch.records import Question, Structure
from parallelsearch.retrieval.indexes.bm25 import write_bm25
from parallelsearch.retrieval.indexes.composed import write_hybrid
from parallelsearch.retrieval.opening import open_retriever
from parallelsearch.retrieval.recall import question_recalls, recall_rows

# The title alone decides which passages a query finds; Oslo stands on two passages, so it fills two places.
PASSAGES = [
    ("Oslo", "alpha alpha alpha"),
    ("Oslo", "alpha alpha beta"),
    ("Lima", "alpha gamma delta"),
    ("Rome", "zeta"),
]


def question(qid: str, text: str, structure: Structure, *titles: str) -> Question:
    return Question(qid, "toy", "dev", text, ("x",), "t", structure, supporting_titles=titles)


QUESTIONS = [
    question("1", "alpha", Structure.PARALLEL, "Oslo", "Lima", "Oslo"),  # order Oslo, Oslo, Lima: at 1 1/2, at 3 both
    question("2", "zeta", Structure.PARALLEL, "Rome", "Nowhere"),  # Rome at once, the other is in no passage
    question("3", "omega", Structure.SEQUENTIAL, "Rome"),  # a word that no passage has
    question("4", "gamma", Structure.SEQUENTIAL, "Lima"),
    question("5", "gamma", Structure.SEQUENTIAL),  # no supporting titles: not counted
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("recall")
    rows = [{"title": title, "text": text} for title, text in PASSAGES]
    (made / "raw.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    build_corpus("geoworld", made / "raw.jsonl", made / "corpus")
    write_bm25(made / "corpus", made / "bm25", Bm25Config(stemmer="none", stopwords="none"))
    write_hybrid([made / "bm25", made / "bm25"], made / "twice", HybridConfig())
    return made


def test_every_question_is_counted_as_by_hand(folder: Path) -> None:
    recalls = question_recalls(open_retriever(folder / "bm25"), QUESTIONS, cutoffs=(1, 2, 3))
    assert [(r.question.qid, r.in_corpus, list(r.at.values())) for r in recalls] == [
        ("1", 1.0, [0.5, 0.5, 1.0]),
        ("2", 0.5, [0.5, 0.5, 0.5]),
        ("3", 1.0, [0.0, 0.0, 0.0]),
        ("4", 1.0, [1.0, 1.0, 1.0]),
    ]


def test_means_are_by_structure_and_over_all(folder: Path) -> None:
    rows = recall_rows(question_recalls(open_retriever(folder / "bm25"), QUESTIONS, cutoffs=(1, 3)))
    assert [(row.structure, row.questions, row.in_corpus, row.at) for row in rows] == [
        ("parallel", 2, 0.75, {1: 0.5, 3: 0.75}),
        ("sequential", 2, 1.0, {1: 0.5, 3: 0.5}),
        ("all", 4, 0.875, {1: 0.5, 3: 0.625}),
    ]


def test_questions_whose_pages_the_corpus_lacks_can_be_left_out(folder: Path) -> None:
    recalls = question_recalls(open_retriever(folder / "bm25"), QUESTIONS, complete_only=True)
    assert [recall.question.qid for recall in recalls] == ["1", "3", "4"]


def test_the_command_prints_and_writes_a_line_for_every_index_and_structure(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_questions(folder / "toy.parquet", QUESTIONS)
    command = ["retriever", "recall", str(folder / "toy.parquet"), "--out", str(folder / "recall.csv")]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--index", str(folder / "bm25"), "--index", str(folder / "twice")])
    assert not ended.value.code
    rows = list(csv.DictReader((folder / "recall.csv").open()))
    assert [(row["index"], row["structure"], row["questions"]) for row in rows] == [
        (index, structure, count)
        for index in ("bm25", "twice")
        for structure, count in (("parallel", "2"), ("sequential", "2"), ("all", "4"))
    ]
    assert rows[2]["recall@3"] == rows[5]["recall@3"] == "0.6250" and rows[2]["in_corpus"] == "0.8750"
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 7 and printed[0].split() == list(rows[0])


def test_questions_without_supporting_titles_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_questions(folder / "none.parquet", QUESTIONS[4:])
    with pytest.raises(SystemExit) as ended:
        main(["retriever", "recall", str(folder / "none.parquet"), "--index", str(folder / "bm25")])
    assert ended.value.code == 1 and "no question has supporting titles" in capsys.readouterr().err
