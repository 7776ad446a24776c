"""A data set of one's own: fields, structures and refusals as its layout says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from parallelsearch.config import STRUCTURES, QuestionLayout, StudyConfig
from parallelsearch.config_files import merge, read_yaml, validated
from parallelsearch.errors import ConfigError, DataError
from parallelsearch.plan.planning import StudyPlan
from parallelsearch.questions.commands import app
from parallelsearch.questions.reader import read_file
from parallelsearch.questions.store import read_provenance, read_questions
from parallelsearch.records import Question, Structure

ROOT = Path(__file__).resolve().parents[2]
GERMAN = QuestionLayout(
    id="nr",
    question="Frage",
    answers="Antworten",
    type="Art",
    titles="Seiten",
    hops="Schritte",
    structures={"Vergleich": "parallel", "Kette": "sequential"},
)
ROWS: list[dict[str, Any]] = [
    {"nr": 7, "Frage": " Which is older? ", "Antworten": "Oslo", "Art": "Vergleich", "Seiten": ["Oslo", "Bergen"]},
    {"nr": 8, "Frage": "Who founded it?", "Antworten": ["Olav", "Olav", "Olav Kyrre"], "Art": "Kette", "Schritte": 2},
]
EXPECTED = [
    Question(
        "7", "towns", "test", "Which is older?", ("Oslo",), "Vergleich", Structure.PARALLEL, None, ("Oslo", "Bergen")
    ),
    Question("8", "towns", "test", "Who founded it?", ("Olav", "Olav Kyrre"), "Kette", Structure.SEQUENTIAL, 2),
]


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def as_table(rows: list[dict[str, Any]]) -> str:
    head = "nr\tFrage\tAntworten\tArt\tSeiten\tSchritte\n"
    cells = [[row.get(name, "") for name in head.strip().split("\t")] for row in rows]
    texts = [[json.dumps(cell) if isinstance(cell, list) else str(cell) for cell in row] for row in cells]
    return head + "".join("\t".join(f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in row) + "\n" for row in texts)


@pytest.mark.parametrize("written", [lines, json.dumps, as_table])
def test_every_form_of_file_gives_the_same_questions(written: Callable[[Any], str], write) -> None:
    path = write(written(ROWS), "towns.txt")
    assert read_file("towns", path, split="test", layout=GERMAN).questions == EXPECTED


def test_parquet_too(tmp_path: Path) -> None:
    rows = [
        {**row, "Antworten": [row["Antworten"]] if isinstance(row["Antworten"], str) else row["Antworten"]}
        for row in ROWS
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema([
        ("nr", pa.int64()), ("Frage", pa.string()), ("Antworten", pa.list_(pa.string())), ("Art", pa.string()),
        ("Seiten", pa.list_(pa.string())), ("Schritte", pa.int64()),
    ])), tmp_path / "towns.parquet")  # fmt: skip
    assert read_file("towns", tmp_path / "towns.parquet", split="test", layout=GERMAN).questions == EXPECTED


def test_the_plain_layout_names_structures_and_numbers_its_rows(write) -> None:
    rows = [{"question": f"{tag}?", "answers": "x", "type": tag.value} for tag in Structure]
    found = read_file("mine", write(lines(rows)), split="dev", layout=QuestionLayout()).questions
    assert [(question.qid, question.structure) for question in found] == [
        (f"mine-dev-{number}", tag) for number, tag in enumerate(Structure)
    ]


def test_one_structure_for_all_needs_no_types(write) -> None:
    layout = QuestionLayout(structures={"*": "sequential", "easy": "single"})
    rows = [{"question": "a?", "answers": "x"}, {"question": "b?", "answers": "x", "type": "easy"}]
    found = read_file("mine", write(lines(rows)), split="dev", layout=layout).questions
    assert [question.structure for question in found] == ["sequential", "single"]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (
            {"nr": 9, "question": "x?", "Antworten": "y", "Art": "Kette"},
            "line 3: field 'Frage' is missing (the row has: nr, question, Antworten, Art); name the right field in"
            " datasets.towns.layout.question.",
        ),
        ({"nr": 9, "Frage": "x?", "Art": "Kette"}, "name the right field in datasets.towns.layout.answers."),
        (
            {"nr": 9, "Frage": "x?", "Antworten": "y", "Art": "Frage"},
            "line 3: type 'Frage' has no structure; known types: Vergleich, Kette; add it to"
            " datasets.towns.layout.structures.",
        ),
        (
            {"nr": 9, "Frage": "x?", "Antworten": "y"},
            "datasets.towns.layout.type, or give all questions one structure with structures: {'*': ...}.",
        ),
        ({"nr": 7, "Frage": "x?", "Antworten": "y", "Art": "Kette"}, "line 3: id '7' is already that of line 1"),
        ({"nr": 9, "Frage": " ", "Antworten": "y", "Art": "Kette"}, "line 3: the question is empty"),
        ({"nr": 9, "Frage": "x?", "Antworten": [], "Art": "Kette"}, "line 3: the list of answers is empty"),
        ({"nr": 9, "Frage": "x?", "Antworten": ["y", 3], "Art": "Kette"}, "field 'Antworten' holds a number (3) in"),
        ({"nr": 9, "Frage": 3, "Antworten": "y", "Art": "Kette"}, "field 'Frage' holds a number (3), not text"),
        ({"nr": 9, "Frage": "x?", "Antworten": "y", "Art": "Kette", "Schritte": "two"}, "'Schritte' holds text, not a"),
    ],
)
def test_a_row_that_is_not_as_declared_is_refused_with_the_key_that_declares_it(
    row: dict[str, Any], sentence: str, write
) -> None:
    with pytest.raises(DataError) as refused:
        read_file("towns", write(lines([*ROWS, row])), split="test", layout=GERMAN)
    assert sentence in str(refused.value)


def test_the_command_writes_the_question_file(write, tmp_path: Path) -> None:
    arguments = ["own", str(write(lines(ROWS))), str(tmp_path / "out.parquet"), "--split", "test", "--name", "towns"]
    done = CliRunner().invoke(app, ["import", *arguments, "--layout", GERMAN.model_dump_json()])
    assert done.exit_code == 0 and "2 questions of towns (declared layout): parallel 1, sequential 1" in done.output
    assert read_questions(tmp_path / "out.parquet") == EXPECTED
    assert read_provenance(tmp_path / "out.parquet").layout == "declared"


def test_a_layout_for_a_known_data_set_is_refused(write, tmp_path: Path) -> None:
    arguments = ["import", "nq", str(write("{}")), str(tmp_path / "out.parquet"), "--layout", '{"question": "q"}']
    refused = CliRunner().invoke(app, arguments).exception
    assert isinstance(refused, ConfigError) and "--name and --layout are for the data set 'own'" in str(refused)


def study(**declared: Any) -> dict[str, Any]:
    return merge(read_yaml(ROOT / "config" / "config.yaml"), declared)


def test_the_workflow_hands_name_and_layout_to_the_reader_of_ones_own_alone() -> None:
    sets = {"towns": {"reader": "own", "corpus": "geoworld", "layout": {"question": "Frage"}}}
    slices = StudyPlan(validated(StudyConfig, study(datasets=sets), "test"), ROOT / "config")
    assert slices.question_reader("geoworld") == "geoworld"
    own, name, towns, option, layout = slices.question_reader("towns")
    assert (own, name, towns, option) == ("own", "--name", "towns", "--layout")
    assert QuestionLayout.model_validate_json(layout) == QuestionLayout(question="Frage")


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        ({"datasets": {"geoworld": {"layout": {}}}}, "a data set has a layout, but its reader is 'geoworld'"),
        ({"corpora": {"geoworld": {"layout": {}}}}, "a corpus has a layout, but its source is 'geoworld'"),
        (
            {"datasets": {"geoworld": {"reader": "own", "layout": {"frage": "x"}}}},
            "allowed here: question, answers, id",
        ),
        (
            {"datasets": {"geoworld": {"reader": "own", "layout": {"structures": {"a": "serial"}}}}},
            "is 'serial': input should be 'parallel', 'sequential', 'single', 'mixed' or 'other'",
        ),
        ({"corpora": {"geoworld": {"source": "own", "layout": {"words": 0}}}}, "greater than or equal to 1"),
    ],
)
def test_a_faulty_declaration_is_refused(declared: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        validated(StudyConfig, study(**declared), "configuration")
    assert sentence in str(refused.value)


def test_the_structures_are_those_of_questions() -> None:
    assert get_args(STRUCTURES) == tuple(Structure)
