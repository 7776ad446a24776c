"""Runs without a reward in the report: their loss is shown, and they are no cell of the reward's weights."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import real_study

from parallelsearch.errors import DataError
from parallelsearch.evaluation.episodes import read_episodes, read_provenance, write_episodes
from parallelsearch.plan.paths import Results
from parallelsearch.report import figures, tables
from parallelsearch.report.study import Study, read_study

LOSSES = [4.0, 2.0, 1.0]
SETTINGS = json.dumps({"arms": [*real_study.ARMS, "sft"], "baseline": "search-r1"})


@pytest.fixture(scope="module")
def supervised(study_files: real_study.RealStudy, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The run and the episodes of an arm `sft` (the answers are those of search-r1)."""
    results = Results(tmp_path_factory.mktemp("supervised"))
    source = next(path for path in study_files.episodes if "/search-r1/seed0/" in str(path))
    episodes = results.episodes("sft", 0, "hotpotqa.dev")
    write_episodes(episodes, read_episodes(source), arm="sft", seed=0, provenance=read_provenance(source))
    return [episodes, real_study.write_supervised_run(results, "sft", 0, LOSSES)]


@pytest.fixture(scope="module")
def study(study_files: real_study.RealStudy, supervised: list[Path]) -> Study:
    return read_study([*study_files.inputs, *supervised], SETTINGS)


def test_the_curves_show_the_loss_beside_the_others_rewards(study: Study) -> None:
    drawing = figures.build("training_curves", study)
    of_sft = drawing.data[drawing.data["arm"] == "sft"]
    assert set(of_sft["figure"]) == {"loss"} and of_sft["value"].to_list() == LOSSES
    titles = [axis.get_title() for axis in drawing.figure.axes if axis.get_visible()]
    assert titles == list(figures.CURVES.values())


def test_a_study_of_supervised_runs_alone_has_one_panel(supervised: list[Path]) -> None:
    drawing = figures.build("training_curves", read_study(supervised, SETTINGS))
    assert [axis.get_title() for axis in drawing.figure.axes] == ["loss on demonstrations"]


def test_the_summary_has_their_steps_seconds_and_loss_and_no_reward(study: Study) -> None:
    rows = {(row["arm"], row["seed"]): row for row in tables.build("training_summary", study).frame.to_dict("records")}
    row = rows["sft", 0]
    assert (row["steps"], row["seconds"]) == (3, 4.5)
    assert row["loss_first"] == row["loss_last"] == pytest.approx(7 / 3)  # of three steps all are first and last
    assert math.isnan(row["reward_first"]) and math.isnan(rows["search-r1", 0]["loss_first"])


def test_they_are_in_the_main_table_and_in_no_grid_of_weights(study: Study, supervised: list[Path]) -> None:
    assert "sft" in set(tables.build("hotpotqa_by_structure", study).frame["arm"])
    for built in (tables.build("ablation_grid", study).frame, figures.build("ablation_grid", study).data):
        assert "sft" not in set(built["arm"]) and "parallelsearch" in set(built["arm"])
    with pytest.raises(DataError, match="no training run"):
        tables.build("ablation_grid", read_study(supervised, SETTINGS))
