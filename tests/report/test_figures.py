"""Figures: the data they show, their files, and that equal input gives equal bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import real_study

from parallelsearch.errors import DataError
from parallelsearch.report import figures, tables
from parallelsearch.report.drawing import COLOURS, rendered, styles, write_drawing
from parallelsearch.report.study import Study, read_study

SETTINGS = json.dumps({"arms": list(real_study.ARMS), "baseline": "search-r1"})
MAGIC = {"pdf": b"%PDF", "png": b"\x89PNG"}


@pytest.fixture(scope="module")
def study(study_files: real_study.RealStudy) -> Study:
    return read_study(study_files.inputs, SETTINGS)


@pytest.mark.parametrize("name", list(figures.FIGURES))
def test_a_figure_is_written_with_its_data_and_twice_the_same(name: str, study: Study, tmp_path: Path) -> None:
    first = write_drawing(figures.build(name, study), tmp_path / "first" / name)
    second = write_drawing(figures.build(name, study), tmp_path / "second" / name)
    assert [path.suffix for path in first] == [".pdf", ".png", ".csv"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.suffix
        assert one.read_bytes().startswith(MAGIC.get(one.suffix[1:], b""))
    assert len(pd.read_csv(first[2])) > 0


def test_an_svg_is_reproducible_too(study: Study) -> None:
    once, again = (rendered(figures.build("ablation_grid", study), "svg") for _ in range(2))
    assert once == again
    assert b"<svg" in once


def test_training_curves_show_every_step_of_every_run(study: Study, study_files: real_study.RealStudy) -> None:
    data = figures.build("training_curves", study).data
    for folder in study_files.runs:
        steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        arm, seed = folder.parent.name, int(folder.name.removeprefix("seed"))
        shown = data[(data["arm"] == arm) & (data["seed"] == seed) & (data["figure"] == "decomposition_ratio/parallel")]
        assert shown["value"].to_list() == [step["decomposition_ratio/parallel"] for step in steps]


def test_bars_are_the_means_over_seeds_of_the_main_table(study: Study) -> None:
    data = figures.build("by_structure", study).data
    main = tables.build("hotpotqa_by_structure", study).frame
    for row in data[data["figure"] == "em"].to_dict("records"):
        same = main[(main["arm"] == row["arm"]) & (main["structure"] == row["structure"])]
        assert row["value"] == pytest.approx(same["em"].mean())
        assert row["low"] == pytest.approx(same["em_low"].mean())
        assert (row["seeds"], row["n"]) == (2, same["n"].sum())


def test_the_grid_has_one_row_for_each_trained_arm_and_seed(study: Study) -> None:
    data = figures.build("ablation_grid", study).data
    assert set(zip(data["lambda_d"], data["lambda_s"], strict=True)) == {(0, 0), (0.15, 0.35), (0, 0.35), (0.15, 0)}
    assert len(data) == 4 * 2


def test_an_arm_keeps_its_colour_whatever_is_shown(study_files: real_study.RealStudy) -> None:
    curves_only = read_study(study_files.runs[2:], SETTINGS)
    drawing = figures.build("training_curves", curves_only)
    colours = {line.get_label(): line.get_color() for line in drawing.figure.axes[0].lines}
    expected = styles(["warm-start", *real_study.ARMS])
    assert colours["parallelsearch"] == expected["parallelsearch"]["color"] == COLOURS[2]


def test_missing_data_and_unknown_names_are_told(study_files: real_study.RealStudy) -> None:
    with pytest.raises(DataError, match="no training run with a step"):
        figures.build("training_curves", read_study(study_files.episodes, SETTINGS))
    with pytest.raises(DataError, match="no figure 'curves'; known figures: training_curves"):
        figures.build("curves", read_study(study_files.inputs, SETTINGS))
