"""Figures: the data they show, their files, and that equal input gives equal bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import real_study

from parallelsearch.errors import DataError
from parallelsearch.evaluation.episodes import read_episodes, read_provenance, write_episodes
from parallelsearch.report import figures, tables
from parallelsearch.report.drawing import COLOURS, rendered, styles, write_drawing
from parallelsearch.report.study import Study, read_study

SETTINGS = json.dumps({"arms": list(real_study.ARMS), "baseline": "search-r1"})
MAGIC = {"pdf": b"%PDF", "png": b"\x89PNG"}


@pytest.fixture(scope="module")
def study(study_files: real_study.RealStudy) -> Study:
    return read_study(study_files.inputs, SETTINGS)


@pytest.mark.parametrize("name", [name for name in figures.FIGURES if name not in ("top_k", "accuracy_by_budget")])
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


def test_top_k_joins_arms_that_differ_in_nothing_else(study_files: real_study.RealStudy, tmp_path: Path) -> None:
    """The same episodes three times: as they are, and as two further arms that were shown 5 and 1 passages."""
    (source,) = (path for path in study_files.episodes if "/parallelsearch/seed0/" in str(path))
    other = next(path for path in study_files.episodes if "/search-r1/seed0/" in str(path))
    files = [source, other]
    for arm, passages in (("top-k-5", 5), ("top-k-1", 1)):
        origin = read_provenance(source)
        config = {**origin.config, "agent": {**origin.config["agent"], "top_k": passages}}
        path = tmp_path / arm / "seed0" / "hotpotqa.dev" / "episodes.parquet"
        changed = replace(origin, top_k=passages, config=config)
        write_episodes(path, read_episodes(source), arm=arm, seed=0, provenance=changed)
        files.append(path)
    apart = tmp_path / "other" / "seed0" / "hotpotqa.dev" / "episodes.parquet"
    unlike = replace(read_provenance(other), config={"agent": {"strategy": "rag"}})
    write_episodes(apart, read_episodes(other), arm="rag", seed=0, provenance=unlike)
    data = figures.build("top_k", read_study([*files, apart], SETTINGS)).data
    lines = data.groupby("line")["arm"].unique()
    assert set(lines["search-r1"]) == {
        "search-r1",
        "parallelsearch",
        "top-k-5",
        "top-k-1",
    }  # one evaluation config here
    assert list(lines["rag"]) == ["rag"]
    assert {(row["arm"], row["top_k"]) for row in data.to_dict("records")} == {
        ("search-r1", 2), ("parallelsearch", 2), ("top-k-5", 5), ("top-k-1", 1), ("rag", 2),
    }  # fmt: skip


def test_a_study_with_one_number_of_passages_has_no_such_figure(study: Study) -> None:
    with pytest.raises(DataError, match=r"the same number of passages; add an arm with another agent\.top_k"):
        figures.build("top_k", study)


def test_turns_are_counted_up_to_all_episodes(study: Study) -> None:
    data = figures.build("turn_distribution", study).data
    episodes = study.episodes[~study.episodes["failed"]]
    for (structure, arm), curve in data.groupby(["structure", "arm"]):
        calls = episodes[(episodes["structure"] == structure) & (episodes["arm"] == arm)]["llm_calls"]
        for row in curve.to_dict("records"):
            assert row["share"] == pytest.approx((calls <= row["turns"]).mean())
        assert curve["share"].max() == 1


def test_the_confusion_figure_counts_every_episode_once(study: Study) -> None:
    data = figures.build("confusion", study).data
    assert data["episodes"].sum() == (~study.episodes["failed"]).sum()
    assert data["decomposed"].sum() == study.episodes[~study.episodes["failed"]]["decomposed"].sum()


def test_no_arm_beats_those_on_the_pareto_line(study: Study) -> None:
    data = figures.build("pareto", study).data
    for _, panel in data.groupby("structure"):
        for row in panel.to_dict("records"):
            beaten = ((panel["llm_calls"] <= row["llm_calls"]) & (panel["em"] > row["em"])).any() or (
                (panel["llm_calls"] < row["llm_calls"]) & (panel["em"] >= row["em"])
            ).any()
            assert row["best"] == (not beaten)
