"""Broken rows of every kind in every shape of file: the sentence names file, line and reason; mended, they are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from published_rows import AUTHORS, json_array, json_lines, table, with_number
from typer.testing import CliRunner

from parallelsearch.errors import DataError
from parallelsearch.questions.commands import app
from parallelsearch.questions.reader import read_file
from parallelsearch.questions.store import read_questions

Fields = dict[str, Any]
Write = Callable[..., Path]
BROKEN = 2  # which of the four rows is broken


def without(name: str) -> Callable[[Fields], Fields]:
    return lambda row: {key: value for key, value in row.items() if key != name}


def having(**changes: Any) -> Callable[[Fields], Any]:
    return lambda row: row | changes


ROW_FAULTS: list[tuple[str, str, Callable[[Fields], Any], str]] = [
    ("question missing", "hotpotqa", without("question"), "field 'question' is missing (the row has: _id, answer,"),
    ("question null", "hotpotqa", having(question=None), "field 'question' is null"),
    ("question empty", "hotpotqa", having(question=""), "the question is empty"),
    ("question blank", "hotpotqa", having(question=" \u00a0\n"), "the question is empty"),
    ("question a number", "hotpotqa", having(question=7), "field 'question' holds a number (7), not text"),
    ("question half a character", "hotpotqa", having(question="a\ud800"), "half a surrogate pair at character 1"),
    ("answer missing", "hotpotqa", without("answer"), "field 'answer' is missing"),
    ("answer null", "hotpotqa", having(answer=None), "field 'answer' is null"),
    ("answer empty", "hotpotqa", having(answer="  "), "every answer is empty"),
    ("answer an object", "hotpotqa", having(answer={"a": 1}), "field 'answer' holds an object, not text"),
    ("id missing", "hotpotqa", without("_id"), "field '_id' is missing"),
    ("id empty", "hotpotqa", having(_id=""), "field '_id' is empty"),
    ("id of an earlier row", "hotpotqa", having(_id="5a8b_0"), "id '5a8b_0' is already that of line {first}"),
    ("type unknown", "hotpotqa", having(type="compare"), "type 'compare' is unknown in data set hotpotqa; its types:"),
    ("type null", "hotpotqa", having(type=None), "the question has no type, and hotpotqa is tagged by type"),
    ("type missing", "2wikimultihopqa", without("type"), "the question has no type, and 2wikimultihopqa"),
    ("type a number", "2wikimultihopqa", having(type=1), "field 'type' holds a number (1), not text"),
    ("facts without title", "hotpotqa", having(supporting_facts=[[3, 0]]), "has an entry without a title: [3, 0]"),
    ("facts are text", "hotpotqa", having(supporting_facts="Ada"), "field 'supporting_facts' is neither a list nor"),
    ("row a list", "hotpotqa", lambda row: list(row), "list instead of an object"),
    ("row null", "hotpotqa", lambda row: None, "NoneType instead of an object"),
    ("answers an empty list", "nq", having(answer=[]), "the list of answers is empty"),
    ("answers all empty", "nq", having(answer=["", " ", "&nbsp;"]), "every answer is empty"),
    ("answers hold null", "nq", having(answer=["a", None]), "field 'answer' holds null in its list, not text"),
    ("aliases a number", "musique", having(answer_aliases=3), "field 'answer_aliases' holds a number (3), not a list"),
    ("paragraphs are text", "musique", having(paragraphs="p"), "field 'paragraphs' is not a list of objects"),
    ("answer not nested", "triviaqa", having(Answer="x"), "field 'Answer' holds text, not an object"),
    ("nested answer incomplete", "triviaqa", having(Answer={"Aliases": []}), "field 'Answer.Value' is missing"),
    ("answers cut in their cell", "popqa", having(possible_answers='["a", "b'), "begins like a JSON list but is none"),
    ("type unknown", "multihop_rag", having(question_type="which"), "type 'which' is unknown in data set multihop_rag"),
    ("type unknown", "geoworld", having(type="area"), "type 'area' is unknown in data set geoworld"),
    ("hops a fraction", "geoworld", having(hops=1.5), "field 'hops' holds a number (1.5), not a whole number"),
    ("ids are text", "geoworld", having(supporting_ids=["7"]), "field 'supporting_ids' is not a list of whole numbers"),
]
SHAPES = {
    "json lines": (json_lines, BROKEN + 1, "line 3: ", 1),
    "json array": (json_array, BROKEN + 2, "line 4 (array index 2): ", 2),
    "indented array": (lambda rows: json.dumps(rows, indent=1), None, "(array index 2): ", 2),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("dataset", "fault", "reason"), [fault[1:] for fault in ROW_FAULTS], ids=[f"{f[1]}: {f[0]}" for f in ROW_FAULTS]
)
def test_a_broken_row_is_refused_and_the_mended_file_read(
    dataset: str, fault: Callable[[Fields], Any], reason: str, shape: str, write: Write, tmp_path: Path
) -> None:
    render, line, place, first = SHAPES[shape]
    good = [with_number(AUTHORS[dataset], number) for number in range(4)]
    rows: list[Any] = [*good]
    rows[BROKEN] = fault(good[BROKEN])
    text = render(rows)
    if line is None:  # the line on which the third object of an indented array opens
        opened = [number for number, part in enumerate(text.split("\n"), start=1) if part in (" {", " [", " null,")]
        place = f"line {opened[BROKEN]} {place}"
    out = tmp_path / "out.parquet"
    path = write(text)

    result = CliRunner().invoke(app, ["import", dataset, str(path), str(out)])

    assert isinstance(result.exception, DataError), result.output
    sentence = str(result.exception)
    assert sentence.startswith(f"{path}, {place}"), sentence
    assert reason.format(first=first) in sentence
    assert sentence.endswith(".") and "\n" not in sentence
    assert list(tmp_path.iterdir()) == [path], "something half-written is left behind"

    write(render(good))
    result = CliRunner().invoke(app, ["import", dataset, str(path), str(out)])
    assert result.exit_code == 0, result.exception
    assert len(read_questions(out)) == 4


LINES = json_lines([with_number(AUTHORS["nq"], number) for number in range(3)])
ARRAY = json_array([with_number(AUTHORS["nq"], number) for number in range(3)])
CSV = table([with_number(AUTHORS["bamboogle"], number) for number in range(3)], ",")
WRAPPED = json.dumps({"Data": [with_number(AUTHORS["triviaqa"], number) for number in range(3)], "Version": 1.0})

TEXT_FAULTS = [
    ("nq", LINES, LINES[:-20], "line 3: the last line breaks off (", "so the file is incomplete; fetch it again."),
    ("nq", LINES, LINES[:-2], "line 3: the last line breaks off (", "fetch it again."),
    ("nq", LINES, LINES.replace('{"question"', '{question"', 1), "line 1: not valid JSON (", "at column 2)"),
    ("nq", LINES, LINES + "{}}\n", "line 4: not valid JSON (Extra data", "correct that row"),
    ("nq", LINES, LINES.replace("moon (1)", "mo\non (1)"), "line 2: not valid JSON (", "correct that row"),
    ("nq", LINES, LINES + "[1]\n", "line 4: list instead of an object", "correct that row"),
    ("nq", ARRAY, ARRAY[:-20], "line 4 (array index 2): the file breaks off inside this element", "fetch it again."),
    ("nq", ARRAY, ARRAY[:-3], "line 4 (after array index 2): the file breaks off before the array is closed", "fetch"),
    ("nq", ARRAY, ARRAY.split("\n", 2)[0] + "\n" + ARRAY.split("\n")[1] + "\n",
     "line 3 (array index 1): the file breaks off inside this element", "fetch it again."),
    ("nq", ARRAY, ARRAY.replace("},\n", "}\n", 1), "line 3 (after array index 0): not valid JSON (expected ',' or ']'",
     "correct that row"),
    ("nq", ARRAY, ARRAY.replace('"answer":', '"answer"', 1), "line 2 (array index 0): not valid JSON (", "correct"),
    ("nq", ARRAY, ARRAY.replace("}\n]", "},\n]"), "line 5 (array index 3): not valid JSON (", "correct that row"),
    ("nq", ARRAY, ARRAY + "[]", "line 5: unexpected text '[]' after the array of rows", "fetch it again."),
    ("triviaqa", WRAPPED, WRAPPED[:-10], "line 1: unexpected text", "after the array of rows; fetch it again."),
    ("triviaqa", WRAPPED, WRAPPED[: WRAPPED.rindex("Blvd")], "line 1 (array index 2): the file breaks off", "fetch"),
    ("bamboogle", CSV, CSV.replace(",james madison", "", 1), "line 2: has 1 columns where the header has 2", "correct"),
    ("bamboogle", CSV, CSV[:-16], "line 4: has 1 columns where the header has 2 and ends the file", "fetch"),
    ("bamboogle", CSV, CSV + 'Who?,"x', "line 5: broken row (", "correct that row"),
    ("bamboogle", CSV, CSV + "Who?,\n", "line 5: every answer is empty", "correct that row"),
    ("bamboogle", CSV, CSV + '"Who\nwas it?",Ada\n,Ada\n', "line 7: the question is empty", "correct that row"),
]  # fmt: skip


@pytest.mark.parametrize(("dataset", "good", "broken", "place", "next_step"), TEXT_FAULTS)
def test_broken_text_is_refused_and_the_mended_file_read(
    dataset: str, good: str, broken: str, place: str, next_step: str, write: Write
) -> None:
    assert broken != good
    path = write(broken, "dev.raw")
    with pytest.raises(DataError) as refused:
        read_file(dataset, path)
    sentence = str(refused.value)
    assert sentence.startswith(f"{path}, {place}"), sentence
    assert next_step in sentence and "\n" not in sentence
    assert len(read_file(dataset, write(good, "dev.raw")).questions) == 3


def test_a_byte_that_is_not_utf8_is_named_with_its_line(write: Write) -> None:
    path = write(LINES.encode() + '{"question": "café", "answer": ["a"]}\n'.encode("latin-1"))
    with pytest.raises(DataError, match=r"raw\.json, line 4: byte 0xe9 is not UTF-8"):
        read_file("nq", path)


def test_every_cut_of_a_file_is_refused_or_leaves_whole_rows(write: Write) -> None:
    """Wherever a download breaks off, no row is invented: an array never passes, lines pass only between two rows."""
    for cut in range(1, len(ARRAY) - 2):
        with pytest.raises(DataError):
            read_file("nq", write(ARRAY[:cut]))
    whole = {LINES.index("\n"), LINES.index("\n", LINES.index("\n") + 1), len(LINES) - 1}
    for cut in range(1, len(LINES)):
        path = write(LINES[:cut])
        if cut in whole or cut - 1 in whole:
            assert len(read_file("nq", path).questions) == LINES[: cut + 1].count("\n")
        else:
            with pytest.raises(DataError, match="breaks off"):
                read_file("nq", path)
