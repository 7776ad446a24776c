"""`parallelsearch tables`, `figures` and `report` as the workflow calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import real_study

from parallelsearch import cli

SETTINGS = json.dumps({"arms": list(real_study.ARMS), "baseline": "search-r1"})


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stop:
        cli.main([str(argument) for argument in arguments])
    return int(stop.value.code or 0)


def test_one_table_is_one_call(tmp_path: Path, study_files: real_study.RealStudy) -> None:
    done = [folder / "done.json" for folder in study_files.runs]
    stem = tmp_path / "tables" / "hotpotqa_by_structure"
    assert run("tables", "hotpotqa_by_structure", stem, *study_files.episodes, *done, "--settings", SETTINGS) == 0
    assert sorted(path.suffix for path in stem.parent.iterdir()) == [".csv", ".md", ".tex"]
    assert stem.with_suffix(".csv").read_text().startswith("arm,seed,structure,n,em,em_low,em_high,f1,")


def test_one_figure_is_one_call(tmp_path: Path, study_files: real_study.RealStudy) -> None:
    stem = tmp_path / "figures" / "training_curves"
    assert run("figures", "training_curves", stem, *study_files.runs, "--settings", SETTINGS) == 0
    assert sorted(path.suffix for path in stem.parent.iterdir()) == [".csv", ".pdf", ".png"]


def test_the_report_is_one_call(tmp_path: Path, study_files: real_study.RealStudy) -> None:
    assert run("report", tmp_path / "index.html", *study_files.inputs, "--settings", SETTINGS) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]


def test_a_mistake_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, study_files: real_study.RealStudy, capsys: pytest.CaptureFixture[str]
) -> None:
    stem = tmp_path / "out" / "table"
    assert run("tables", "geoworld_by_structure", stem, *study_files.episodes) == 1
    error = capsys.readouterr().err
    assert error == "parallelsearch: there is no episode of geoworld; the given files hold hotpotqa.\n"
    missing = tmp_path / "eval" / "episodes.parquet"
    assert run("report", stem, missing) == 1
    assert f"{missing} is missing; rerun the evaluation" in capsys.readouterr().err
    assert not stem.parent.exists()
