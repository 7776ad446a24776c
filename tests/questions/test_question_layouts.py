"""Every data set in its authors' layout, FlashRAG's, veRL's and Question's own, as lines, array, table and parquet."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from published_rows import AUTHORS, json_array, json_lines, table, with_number
from typer.testing import CliRunner

from parallelsearch.errors import DataError
from parallelsearch.geoworld.commands import app as geoworld_app
from parallelsearch.questions.reader import Skip, read_file
from parallelsearch.records import Question, Structure

Write = Callable[..., Path]

EXPECTED = {
    "hotpotqa": Question(
        "5a8b", "hotpotqa", "dev", "Were Ada and Bob of the same nationality?", ("yes",), "comparison",
        Structure.PARALLEL, 2, ("Ada", "Bob"),
    ),
    "2wikimultihopqa": Question(
        "b088", "2wikimultihopqa", "dev", "Which film has the younger director, A or B?", ("B",), "bridge_comparison",
        Structure.MIXED, 4, ("A", "B", "Director A", "Director B"),
    ),
    "musique": Question(
        "2hop__1_2", "musique", "dev", "What is the seat of the county of Van Hook?",
        ("Stanley", "Stanley, North Dakota"), "2hop", Structure.SEQUENTIAL, 2, ("Van Hook", "Stanley"),
    ),
    "bamboogle": Question(
        "bamboogle-dev-0", "bamboogle", "dev", "Who was president when Citibank was founded?", ("james madison",), "",
        Structure.SEQUENTIAL, 2,
    ),
    "nq": Question(
        "nq-dev-0", "nq", "dev", "when was the last time anyone was on the moon",
        ("14 December 1972 UTC", "December 1972"), "", Structure.SINGLE, 1,
    ),
    "triviaqa": Question(
        "tc_33", "triviaqa", "dev", "Which musical premiered on 10th December 1993?",
        ("Sunset Boulevard", "Sunset Blvd", "Sunset Boulevard (musical)"), "", Structure.SINGLE, 1,
    ),
    "popqa": Question(
        "4222362", "popqa", "dev", "What is George Rankin's occupation?", ("politician", "political leader", "pol"),
        "occupation", Structure.SINGLE, 1, ("George Rankin",),
    ),
    "multihop_rag": Question(
        "multihop_rag-dev-0", "multihop_rag", "dev", "Do The Verge and The Age agree?", ("no",), "comparison_query",
        Structure.PARALLEL, 2, ("Apple defends deal", "Is it fair?"),
    ),
    "geoworld": Question(
        "geoworld-test-0", "geoworld", "test", "Which is larger, Chad or Mali?", ("Chad",), "comparison",
        Structure.PARALLEL, 2, ("Chad", "Mali"), (7, 11),
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", [json_lines, json_array, lambda rows: json.dumps(rows, indent=4)])
@pytest.mark.parametrize("dataset", EXPECTED)
def test_authors_layout(dataset: str, shape: Callable[[list[Any]], str], write: Write) -> None:
    split = EXPECTED[dataset].split
    reading = read_file(dataset, write(shape([AUTHORS[dataset]])), split=split)
    assert reading.questions == [EXPECTED[dataset]]
    assert reading.layout == ("question" if dataset == "geoworld" else "authors")


def test_popqa_tsv_and_bamboogle_csv_give_the_same_questions(write: Write) -> None:
    popqa = write(table([AUTHORS["popqa"]], "\t"), "popQA.tsv")
    assert '""politician""' in popqa.read_text()  # the list is quoted as pandas quotes it
    assert read_file("popqa", popqa, split="dev").questions == [EXPECTED["popqa"]]
    bamboogle = write(table([AUTHORS["bamboogle"]], ","), "sheet.csv")
    assert read_file("bamboogle", bamboogle, split="dev").questions == [EXPECTED["bamboogle"]]


def test_triviaqa_wrapped_as_published_and_in_the_lower_case_copy(write: Write) -> None:
    wrapped = {"Domain": "Web", "Data": [AUTHORS["triviaqa"]], "VerifiedEval": False, "Version": 1.0}
    assert read_file("triviaqa", write(json.dumps(wrapped, indent=2)), split="dev").questions == [EXPECTED["triviaqa"]]
    answer = AUTHORS["triviaqa"]["Answer"]
    lower = {
        "question": AUTHORS["triviaqa"]["Question"],
        "question_id": "tc_33",
        "answer": {"value": answer["Value"], "aliases": answer["Aliases"], "human_answers": answer["HumanAnswers"]},
    }
    assert read_file("triviaqa", write(json_lines([lower])), split="dev").questions == [EXPECTED["triviaqa"]]


def test_parquet_copies_hold_supporting_facts_by_column(write: Write, tmp_path: Path) -> None:
    fields = dict(AUTHORS["hotpotqa"])
    fields["id"] = fields.pop("_id")
    fields["supporting_facts"] = {"title": ["Ada", "Bob", "Ada"], "sent_id": [0, 1, 2]}
    path = tmp_path / "validation.parquet"
    pq.write_table(pa.Table.from_pylist([{key: fields[key] for key in fields if key != "context"}]), path)
    assert read_file("hotpotqa", path, split="dev").questions == [EXPECTED["hotpotqa"]]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"validation\.parquet is a broken or cut-off parquet file"):
        read_file("hotpotqa", path)


@pytest.mark.parametrize(
    "facts",
    [
        [["Ada", [0, 2], ["Ada is American."], {"p": 1}], ["Bob", [1], [], {}]],
        [{"title": "Ada", "sent_id": 0}, {"title": "Bob", "sent_id": None}],
        {"title": ["Ada", "Bob"], "sent_id": [0, 1]},
    ],
)
def test_supporting_facts_of_other_shapes(facts: Any, write: Write) -> None:
    (question,) = read_file(
        "hotpotqa", write(json_array([AUTHORS["hotpotqa"] | {"supporting_facts": facts}]))
    ).questions
    assert question.supporting_titles == ("Ada", "Bob")


def test_supporting_facts_may_be_missing(write: Write) -> None:
    row = {key: value for key, value in AUTHORS["hotpotqa"].items() if key not in ("supporting_facts", "context")}
    (question,) = read_file("hotpotqa", write(json_array([row]))).questions
    assert question.supporting_titles == ()


FLASHRAG_METADATA = {
    "hotpotqa": {
        "type": "comparison",
        "level": "hard",
        "supporting_facts": {"title": ["Ada", "Bob"], "sent_id": [0, 1]},
    },
    "2wikimultihopqa": {
        "type": "bridge_comparison",
        "supporting_facts": {"title": ["A", "B", "Director A", "Director B"], "sent_id": [0, 0, 0, 0]},
    },
    "musique": {
        "answerable": True,
        "question_decomposition": [
            {"id": 1, "question": "q", "answer": "a", "support_paragraph": {"idx": 0, "title": "Van Hook"}},
            {"id": 2, "question": "q", "answer": "a", "support_paragraph": {"idx": 2, "title": "Stanley"}},
        ],
    },
    "nq": None,
    "popqa": {"prop": "occupation", "s_wiki_title": "George Rankin", "s_aliases": '["George James Rankin"]'},
}


@pytest.mark.parametrize("dataset", FLASHRAG_METADATA)
def test_flashrag_layout(dataset: str, write: Write) -> None:
    expected = EXPECTED[dataset]
    row = {
        "id": "dev_0",
        "question": expected.text,
        "golden_answers": list(expected.golden_answers),
        "metadata": FLASHRAG_METADATA[dataset],
    }
    reading = read_file(dataset, write(json_lines([row])))
    assert reading.layout == "flashrag"
    (question,) = reading.questions
    assert (question.qid, question.split) == ("dev_0", "dev")  # the split that FlashRAG's id begins with
    for name in ("text", "golden_answers", "structure", "hops", "supporting_titles"):
        assert getattr(question, name) == getattr(expected, name)
    assert question.type == ("" if dataset == "musique" else expected.type)


def test_flashrag_row_without_metadata_is_refused_where_the_type_is_needed(write: Write) -> None:
    rows = [
        {"id": "dev_0", "question": "q?", "golden_answers": ["a"], "metadata": {"type": "bridge"}},
        {"id": "dev_1", "question": "q?", "golden_answers": ["a"], "metadata": None},
    ]
    path = write(json_lines(rows))
    with pytest.raises(DataError, match=r"raw\.json, line 2: the question has no type.*--skip untyped"):
        read_file("hotpotqa", path)
    reading = read_file("hotpotqa", path, skip={Skip.UNTYPED})
    assert [question.qid for question in reading.questions] == ["dev_0"]
    assert reading.left_out == {"untyped": 1}


@pytest.mark.parametrize("truth", ["B", ["B"], {"target": ["B", "B"]}])
def test_verl_layout(truth: Any, write: Write) -> None:
    row = {
        "data_source": "2wikimultihopqa",
        "prompt": [{"role": "user", "content": "Answer the given question. Question: which?"}],
        "ability": "fact-reasoning",
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {"split": "test", "index": 3, "type": "compositional", "question": "which?"},
    }
    (question,) = read_file("2wiki", write(json_lines([row]))).questions
    assert question == Question(
        "3", "2wikimultihopqa", "test", "which?", ("B",), "compositional", Structure.SEQUENTIAL, 2
    )
    with pytest.raises(
        DataError, match=r"line 1: the row is of data set '2wikimultihopqa', not nq; import the file as"
    ):
        read_file("nq", write(json_lines([row])))


def test_musique_full_pairs_are_refused_or_left_out(write: Write) -> None:
    """MuSiQue-Full repeats an id with a context that cannot answer; copies drop the field that says so."""
    marked = AUTHORS["musique"] | {"answerable": False}
    unmarked = {key: value for key, value in AUTHORS["musique"].items() if key != "answerable"}
    unmarked["paragraphs"] = [paragraph for paragraph in unmarked["paragraphs"] if paragraph["title"] != "Stanley"]
    path = write(json_lines([AUTHORS["musique"], marked, unmarked]), "musique_full_v1.0_dev.jsonl")
    with pytest.raises(DataError, match=r"musique_full_v1\.0_dev\.jsonl, line 2: .*--skip unanswerable"):
        read_file("musique", path)
    reading = read_file("musique", path, split="dev", skip=[Skip.UNANSWERABLE])
    assert reading.questions == [EXPECTED["musique"]]
    assert reading.left_out == {"unanswerable": 2}


def test_multihop_rag_in_two_files(write: Write) -> None:
    row = AUTHORS["multihop_rag"]
    queries = {"total": 1, "queries": [{"id": "7", "question": row["query"], "question_type": row["question_type"]}]}
    path = write(json.dumps(queries), "queries.json")
    with pytest.raises(
        DataError, match=r"queries\.json, line 1 \(array index 0\): field 'answer' is missing.*--answers"
    ):
        read_file("multihop_rag", path)
    truth = {"answer": "no", "evidence_list": row["evidence_list"]}
    answers = write(json.dumps({"8": truth}), "truth.json")
    with pytest.raises(DataError, match=r"queries\.json, line 1 .*: id '7' has no answer in .*truth\.json"):
        read_file("multihop_rag", path, answers=answers)
    write(json.dumps({"7": truth}), "truth.json")
    (question,) = read_file("multihop_rag", path, split="dev", answers=answers).questions
    expected = EXPECTED["multihop_rag"]
    assert (question.qid, question.golden_answers, question.supporting_titles) == (
        "7", expected.golden_answers, expected.supporting_titles,
    )  # fmt: skip
    with pytest.raises(DataError, match="hotpotqa keeps its answers in the question file"):
        read_file("hotpotqa", path, answers=answers)


def test_gzip_is_told_from_content_not_from_the_name(write: Write) -> None:
    text = json_lines([AUTHORS["hotpotqa"]])
    packed = write(gzip.compress(text.encode()), "dev.json")
    plain = write(text, "dev.json.gz")
    assert read_file("hotpotqa", packed, split="dev").questions == [EXPECTED["hotpotqa"]]
    assert read_file("hotpotqa", plain, split="dev").questions == [EXPECTED["hotpotqa"]]


def test_byte_order_mark_blank_lines_and_windows_line_ends_are_accepted(write: Write) -> None:
    rows = [with_number(AUTHORS["nq"], number) for number in range(2)]
    text = "\ufeff" + json_lines(rows).replace("\n", "\r\n\r\n")
    assert len(read_file("nq", write(text)).questions) == 2


def test_line_separator_characters_inside_a_text_do_not_count_as_lines(write: Write) -> None:
    rows = [AUTHORS["nq"] | {"question": "one\u2028two\x85three"}, AUTHORS["nq"] | {"question": ""}]
    with pytest.raises(DataError, match=r"raw\.json, line 2: the question is empty"):
        read_file("nq", write(json_lines(rows)))


def test_split_filters_rows_that_name_their_own(write: Write) -> None:
    rows = [
        with_number(AUTHORS["geoworld"], number) | {"split": split} for number, split in enumerate(["train", "test"])
    ]
    path = write(json_lines(rows))
    reading = read_file("geoworld", path, split="test")
    assert [question.split for question in reading.questions] == ["test"]
    assert reading.left_out == {"of split train": 1}
    assert [question.split for question in read_file("geoworld", path).questions] == ["train", "test"]
    with pytest.raises(DataError, match=r"no question is left \(left out: 1 of split train, 1 of split test\)"):
        read_file("geoworld", path, split="dev")


def test_split_is_unknown_when_neither_given_nor_told(write: Write) -> None:
    (question,) = read_file("nq", write(json_lines([AUTHORS["nq"]]))).questions
    assert (question.split, question.qid) == ("unknown", "nq-0")


def test_limit_takes_the_first_questions(write: Write) -> None:
    rows = [with_number(AUTHORS["hotpotqa"], number) for number in range(5)]
    questions = read_file("hotpotqa", write(json_array(rows)), limit=2).questions
    assert [question.qid for question in questions] == ["5a8b_0", "5a8b_1"]
    with pytest.raises(DataError, match="the limit is 0"):
        read_file("hotpotqa", write(json_array(rows)), limit=0)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"[]", "holds no rows"),
        (b'{"Data": []}', "holds no rows"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 2\n", "is a Git LFS pointer"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "is a web page"),
        (b"PK\x03\x04....", "is a zip archive"),
        (bz2.compress(b"[]"), "is a bzip2 archive"),
        ("[]".encode("utf-16"), "is UTF-16"),
        (b"just some words\n", "is neither JSON nor a table with a header"),
        (b'{\n"0": {"answer": "no"}\n}', "is a single JSON object without a list of rows"),
        (b'{"id": "p1", "title": "A", "text": "B"}\n', "line 1: the fields (id, title, text) are in no layout known"),
        (b"a,b,c\n1,2,3\n", "line 2: the fields (a, b, c) are in no layout known"),
        (gzip.compress(b'{"question": "q", "answer": "a"}\n' * 50)[:-9], "is a broken or cut-off gzip file"),
    ],
)
def test_what_is_no_question_file_is_refused_by_name(content: bytes, sentence: str, write: Write) -> None:
    path = write(content, "thing.bin")
    with pytest.raises(DataError) as refused:
        read_file("nq", path)
    assert str(refused.value).startswith(str(path)) and sentence in str(refused.value)
    assert str(refused.value).count("\n") == 0


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.json does not exist"):
        read_file("nq", tmp_path / "absent.json")
    with pytest.raises(DataError, match="cannot be read"):
        read_file("nq", tmp_path)


def test_a_question_file_of_another_data_set_is_refused(write: Write) -> None:
    row = {"id": "1", "dataset": "frames", "split": "test", "question": "q?", "golden_answers": ["a"]}
    with pytest.raises(DataError, match=r"line 1: the row is of data set 'frames', not nq; name a file of nq"):
        read_file("nq", write(json_lines([row])))


def test_geoworld_structure_must_agree_with_the_table(write: Write) -> None:
    row = AUTHORS["geoworld"] | {"structure": "sequential"}
    with pytest.raises(
        DataError, match=r"line 1: structure is 'sequential', but type 'comparison' of geoworld is parallel"
    ):
        read_file("geoworld", write(json_lines([row])))


def test_what_the_geoworld_generator_writes_is_read_unchanged(tmp_path: Path) -> None:
    world = tmp_path / "geoworld"
    settings = {"passages": 400, "train_questions": 40, "dev_questions": 8, "test_questions": 16}
    result = CliRunner().invoke(geoworld_app, ["build", str(world), "--settings", json.dumps(settings)])
    assert result.exit_code == 0, result.exception
    written = [json.loads(line) for line in (world / "questions.test.jsonl").read_text().splitlines()]
    questions = read_file("geoworld", world / "questions.test.jsonl", split="test").questions
    assert len(questions) == 16
    assert [json.loads(json.dumps(asdict(question))) for question in questions] == written
