"""`parallelsearch score`: fields in, fields out, and one sentence for every mistake in the file."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from parallelsearch.errors import ConfigError, DataError, UserError
from parallelsearch.rewards.commands import app

RIGHT = (
    "<think>two look-ups</think><search>age of Oslo ## age of Bergen</search>\n\n"
    "<information>Results for age of Oslo:\nDoc 1(Title: Oslo) <search>no</search> 1040\n</information>\n\n"
    "<think>1040</think><answer> Oslo. </answer>"
)
ROW = {"question": "Which is older?", "golden_answers": ["Oslo"], "type": "comparison", "transcript": RIGHT}


def score(tmp_path, *rows, options=(), name="in.jsonl"):
    """The command's result on a file of `rows` (objects, or raw lines)."""
    file = tmp_path / name
    text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    file.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    return CliRunner().invoke(app, [str(file), *options])


def scores(tmp_path, *rows, **options):
    result = score(tmp_path, *rows, **options)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("semantics", "count", "total"), [("paper", 0.0, 1.45), ("released", 0.35, 1.8), ("bounded", 0.0, 1.45)]
)
def test_every_output_field(tmp_path, semantics, count, total):
    assert scores(tmp_path, ROW, options=["--semantics", semantics]) == [
        {
            "em": 1.0,
            "f1": 1.0,
            "answer": "Oslo.",
            "searches": 1,
            "sub_queries": [["age of Oslo", "age of Bergen"]],
            "decomposed": True,
            "well_formed": True,
            "reward": {"outcome": 1.0, "decomposition": 0.45, "search_count": count, "format": 0.0, "total": total},
        }
    ]


def test_transcripts_in_the_tags_of_research(tmp_path):
    boxed = RIGHT.replace("information>", "result>").replace(" Oslo. <", r" It is \boxed{Oslo}. <")
    [found] = scores(tmp_path, {**ROW, "transcript": boxed}, options=["--tags", "research"])
    assert (found["answer"], found["em"], found["searches"], found["well_formed"]) == ("Oslo", 1.0, 1, True)
    [found] = scores(tmp_path, {**ROW, "transcript": boxed})
    assert (found["em"], found["well_formed"]) == (0.0, False)
    with pytest.raises(ConfigError, match=r"reads Search-R1's tags, but agent.tags is 'research'"):
        scores(tmp_path, ROW, options=["--tags", "research", "--semantics", "released"])
    with pytest.raises(ConfigError, match=r"'tags' is 'none'.*'search_r1' or 'research'"):
        scores(tmp_path, ROW, options=["--tags", "none"])


def test_rows_keep_their_order_and_blank_lines_are_skipped(tmp_path):
    rows = [{**ROW, "transcript": RIGHT.replace("Oslo. ", name)} for name in ("Oslo", "Bergen", "Lima")]
    found = scores(tmp_path, rows[0], "", rows[1], rows[2])
    assert [row["answer"] for row in found] == ["Oslo", "Bergen", "Lima"]
    assert [row["em"] for row in found] == [1.0, 0.0, 0.0]


def test_gzip_is_read_whatever_the_name(tmp_path):
    plain = scores(tmp_path, ROW, ROW)
    assert scores(tmp_path, ROW, ROW, name="in.jsonl.gz") == plain
    (tmp_path / "odd.jsonl").write_bytes((tmp_path / "in.jsonl.gz").read_bytes())
    result = CliRunner().invoke(app, [str(tmp_path / "odd.jsonl")])
    assert [json.loads(line) for line in result.stdout.splitlines()] == plain


def test_an_unfinished_transcript(tmp_path):
    row = {**ROW, "transcript": "<think>hm</think><search>a ## b</search>\n<information>x</information>\n<think>"}
    found = scores(tmp_path, row)[0]
    assert (found["em"], found["f1"], found["answer"], found["searches"], found["well_formed"]) == (
        0,
        0,
        None,
        1,
        False,
    )
    empty = scores(tmp_path, {**ROW, "transcript": ""})[0]
    assert (empty["answer"], empty["searches"], empty["sub_queries"], empty["decomposed"]) == (None, 0, [], False)


# Data set's own type -> the total (paper semantics) of the right answer after one parallel search, by hand:
# parallel 1 + 0.45; single 1 + 0; all others 1 - 0.35.
@pytest.mark.parametrize(
    ("kind", "total"),
    [
        ("comparison", 1.45), ("comparison_query", 1.45),
        ("na", 1.0), ("single", 1.0),
        ("bridge", 0.65), ("inference", 0.65), ("compositional", 0.65), ("inference_query", 0.65),
        ("bridge_comparison", 0.65), ("temporal_query", 0.65), ("null_query", 0.65),
    ],
)  # fmt: skip
def test_types_of_all_data_sets(tmp_path, kind, total):
    assert scores(tmp_path, {**ROW, "type": kind})[0]["reward"]["total"] == pytest.approx(total)


@pytest.mark.parametrize(
    ("structure", "total"),
    [("parallel", 1.45), ("single", 1.0), ("sequential", 0.65), ("mixed", 0.65), ("other", 0.65)],
)
def test_structure_goes_before_type(tmp_path, structure, total):
    row = {**ROW, "type": "unheard of", "structure": structure}
    assert scores(tmp_path, row)[0]["reward"]["total"] == pytest.approx(total)


@pytest.mark.parametrize("golden", [[], [None], [""]])
def test_golden_answers_that_cannot_be_matched(tmp_path, golden):
    found = scores(tmp_path, {**ROW, "golden_answers": golden})[0]
    assert (found["em"], found["f1"], found["reward"]["outcome"]) == (0.0, 0.0, 0.0)


def test_one_golden_answer_needs_no_list(tmp_path):
    assert scores(tmp_path, {**ROW, "golden_answers": "Oslo"})[0]["em"] == 1.0


def test_settings(tmp_path):
    options = ["--semantics", "paper", "--settings", '{"lambda_d": 0.5, "alpha": 2}']
    assert scores(tmp_path, ROW, options=options)[0]["reward"]["decomposition"] == 1.0
    options = ["--settings", '{"semantics": "released"}']
    assert scores(tmp_path, ROW, options=options)[0]["reward"]["search_count"] == 0.35


WITHOUT_STEPS = '{"stepsearch": {"information_gain": false, "redundancy_penalty": false}}'


# One parallel search, right: F1 1; cos(pi / 6); keys: 'age of Oslo' for 'Oslo' has F1 2 * (1/3) / (4/3).
@pytest.mark.parametrize(
    ("semantics", "settings", "reward"),
    [
        ("f1", "{}", {"f1": 1.0, "total": 1.0}),
        ("research", "{}", {"f1": 1.0, "format": 0.0, "total": 1.0}),
        ("search_r1_format", "{}", {"outcome": 1.0, "format": 0.0, "total": 1.0}),
        ("otc", "{}", {"outcome": 1.0, "tool": 0.8660254038, "total": 0.8660254038}),
        ("stepsearch", WITHOUT_STEPS, {"f1": 1.0, "key": 0.309, "format": 0.0, "steps": 0.0, "total": 1.309}),
    ],
)
def test_the_rewards_of_other_methods(tmp_path, semantics, settings, reward):
    row = {**ROW, "supporting_titles": ["Oslo"]}
    assert scores(tmp_path, row, options=["--semantics", semantics, "--settings", settings])[0]["reward"] == reward


def test_rewards_of_what_was_retrieved_cannot_be_told_from_a_transcript(tmp_path):
    error = score(tmp_path, ROW, options=["--semantics", "stepsearch"]).exception
    assert isinstance(error, ConfigError) and "stepsearch.information_gain" in str(error)
    assert scores(tmp_path, ROW, options=["--semantics", "stepsearch", "--settings", WITHOUT_STEPS])


def without(*names):
    return {key: value for key, value in ROW.items() if key not in names}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (without("type"), ["line 2", "structure", "type"]),
        ({**ROW, "type": None}, ["line 2", "structure", "type"]),
        ({**ROW, "type": "komparison"}, ["line 2", "komparison", "bridge_comparison"]),
        ({**ROW, "structure": "serial"}, ["line 2", "serial", "sequential"]),
        (without("transcript"), ["line 2", "transcript"]),
        ({**ROW, "transcript": ["x"]}, ["line 2", "transcript", "list"]),
        (without("golden_answers"), ["line 2", "golden_answers"]),
        ({**ROW, "golden_answers": 7}, ["line 2", "golden_answers", "7"]),
        ({**ROW, "golden_answers": [7]}, ["line 2", "golden_answers"]),
        (without("question"), ["line 2", "question"]),
        ('{"question": "x", ', ["line 2"]),
        ("[1]", ["line 2", "list"]),
    ],
)
def test_mistakes_name_file_and_line(tmp_path, row, words):
    result = score(tmp_path, ROW, row, ROW)
    assert isinstance(result.exception, DataError)
    sentence = str(result.exception)
    assert "in.jsonl" in sentence and all(word in sentence for word in words), sentence
    assert "\n" not in sentence and result.stdout == ""
    # Corrected, the file is scored.
    assert len(scores(tmp_path, ROW, ROW, ROW)) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--semantics", "papers"], ["papers", "released"]),
        (["--settings", '{"lambda": 1}'], ["lambda", "lambda_d"]),
        (["--settings", '{"lambda_d": -1}'], ["lambda_d", "-1"]),
        (["--settings", "x"], ["JSON"]),
    ],
)
def test_mistakes_in_options(tmp_path, options, words):
    result = score(tmp_path, ROW, options=options)
    assert isinstance(result.exception, ConfigError) and all(word in str(result.exception) for word in words)


def test_a_missing_file(tmp_path):
    error = CliRunner().invoke(app, [str(tmp_path / "none.jsonl")]).exception
    assert isinstance(error, UserError) and "none.jsonl" in str(error)


def test_from_the_shell(tmp_path):
    """Scores on stdout only, the error sentence on stderr only, exit codes 0 and 1."""
    (tmp_path / "good.jsonl").write_text(json.dumps({**ROW, "golden_answers": ["Malmö", "Oslo"]}) + "\n")
    (tmp_path / "bad.jsonl").write_text(json.dumps(without("type")) + "\n")
    run = [sys.executable, "-m", "parallelsearch.cli", "score"]
    good = subprocess.run([*run, str(tmp_path / "good.jsonl"), "--semantics", "paper"], capture_output=True, text=True)
    assert (good.returncode, good.stderr) == (0, "") and json.loads(good.stdout)["em"] == 1.0
    bad = subprocess.run([*run, str(tmp_path / "bad.jsonl")], capture_output=True, text=True)
    assert (bad.returncode, bad.stdout) == (1, "")
    assert len(bad.stderr.strip().splitlines()) == 1 and "bad.jsonl, line 1" in bad.stderr


def test_real_transcripts(shared_data, tmp_path):
    """All 125 transcripts of a published policy; its own EM and F1 are stored beside them."""
    with gzip.open(shared_data / "raw" / "search_r1_traces_bamboogle_instruct.jsonl.gz", "rt") as lines:
        stored = [json.loads(line) for line in lines]
    rows = [
        {"question": row["question"], "golden_answers": row["golden_answers"], "structure": "sequential",
         "transcript": row["output"]["final_response"]}
        for row in stored
    ]  # fmt: skip
    found = scores(tmp_path, *rows, options=["--semantics", "paper"])
    assert [row["em"] for row in found] == [row["output"]["metric_score"]["em"] for row in stored]
    assert [row["f1"] for row in found] == pytest.approx([row["output"]["metric_score"]["f1"] for row in stored])
    # Without think blocks none is well-formed: 1 - 0.1 + 0.15 when right, 0.15 when wrong, 0.35 less with one search.
    for row in found:
        expected = (0.9 if row["em"] else 0.0) + 0.15 - 0.35 * (2 - min(row["searches"], 2))
        assert row["reward"]["total"] == pytest.approx(expected)
