"""Accuracy against budget and by parts, from answers that are counted by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from by_hand_budgets import SETTINGS, write_arm
from scipy import stats

from parallelsearch.errors import DataError
from parallelsearch.report import figures, tables
from parallelsearch.report.budget_tables import kind_of_answer
from parallelsearch.report.drawing import write_drawing
from parallelsearch.report.study import Study, read_study
from parallelsearch.report.table import markdown

# 12 questions of two parts, 8 of three. In parallel: 2 calls, 40 tokens. One by one: parts + 1 calls, 70 or 100 tokens.
OURS = {(2, 12): (2, True), (3, 6): (2, True), (3, 2): (2, False)}
THEIRS = {(2, 9): (3, True), (2, 3): (3, False), (3, 8): (4, True)}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Two seeds that answer alike; within the study's own limits everything is answered as without."""
    root = tmp_path_factory.mktemp("swept")
    files = [
        write_arm(root, folder, arm, seed, made)
        for folder in ("geoworld.test", "geoworld.test.unlimited")
        for arm, made in {"search-r1": THEIRS, "parallelsearch": OURS}.items()
        for seed in (0, 1)
    ]
    return read_study(files, json.dumps(SETTINGS))


def test_em_under_every_budget_by_parts(study: Study) -> None:
    frame = tables.build("geoworld_by_budget", study).frame
    assert list(frame.columns) == [
        "arm", "structure", "hops", "budget", "value", "n", "seeds", "em", "em_low", "em_high", "decomposition_ratio",
        "turns", "em_difference", "em_difference_low", "em_difference_high",
    ]  # fmt: skip
    budgets = [("llm_calls", 2), ("llm_calls", 3), ("llm_calls", 4), ("response_tokens", 60), ("response_tokens", 90)]
    by = {tuple(row[:5]): row[5:] for row in frame.fillna({"value": 0}).itertuples(index=False, name=None)}
    expected = {  # parts -> EM of theirs under each budget and without
        "all": [0, 9 / 20, 17 / 20, 0, 9 / 20, 17 / 20],
        "2": [0, 9 / 12, 9 / 12, 0, 9 / 12, 9 / 12],
        "3": [0, 0, 1, 0, 0, 1],
        "3+": [0, 0, 1, 0, 0, 1],
    }
    ours = {"all": 18 / 20, "2": 1, "3": 6 / 8, "3+": 6 / 8}
    for hops, shares in expected.items():
        for (kind, value), share in zip([*budgets, ("unlimited", 0)], shares, strict=True):
            theirs = by["search-r1", "parallel", hops, kind, value]
            mine = by["parallelsearch", "parallel", hops, kind, value]
            assert (theirs[2], mine[2]) == pytest.approx((share, ours[hops])), (hops, kind, value)
            assert mine[7] == pytest.approx(ours[hops] - share) and theirs[7] != theirs[7]
            assert mine[1] == theirs[1] == 2 and mine[3] <= mine[2] <= mine[4]
    assert by["search-r1", "parallel", "3", "llm_calls", 2][6] == 2  # turns: it was stopped after the second
    assert by["search-r1", "parallel", "3", "response_tokens", 60][6] == 2
    assert by["parallelsearch", "parallel", "all", "unlimited", 0][5:7] == (1, 2)
    rows = frame[(frame["arm"] == "search-r1") & (frame["hops"] == "2")]["budget"].to_list()
    assert rows[-1] == "unlimited" and len(rows) == 6  # beside those with a limit


def test_intervals_of_seeds_that_answer_alike_are_those_of_one(study: Study) -> None:
    """The paired difference on two parts: 3 of 12 questions differ; its interval is SciPy's bootstrap of 12 pairs."""
    frame = tables.build("geoworld_by_budget", study).frame
    row = frame[(frame["arm"] == "parallelsearch") & (frame["hops"] == "2") & (frame["budget"] == "unlimited")].iloc[0]
    pairs = [1.0] * 3 + [0.0] * 9
    interval = stats.bootstrap((pairs,), lambda x, axis: x.mean(axis), method="percentile", rng=0).confidence_interval
    assert (row["em_difference_low"], row["em_difference_high"]) == pytest.approx(tuple(interval), abs=0.09)


def test_the_main_table_keeps_its_columns_and_ends_with_em_without_limits(study: Study, tmp_path: Path) -> None:
    table = tables.build("geoworld_by_structure", study)
    assert list(table.frame.columns) == [*tables.BY_STRUCTURE_COLUMNS, "em_unlimited"]
    assert table.frame["em_unlimited"].to_list() == pytest.approx([17 / 20, 17 / 20, 18 / 20, 18 / 20])
    assert "| em | f1 |" in markdown(table) and " [" in markdown(table)
    alone = read_study([write_arm(tmp_path, "geoworld.test", "search-r1", 0, THEIRS)], json.dumps(SETTINGS))
    assert list(tables.build("geoworld_by_structure", alone).frame.columns) == tables.BY_STRUCTURE_COLUMNS
    with pytest.raises(
        DataError, match=r"geoworld was not answered without the study's limits; set evaluation\.budgets"
    ):
        tables.build("geoworld_by_budget", alone)


def test_answers_are_counted_by_parts_and_kind(study: Study) -> None:
    frame = tables.build("geoworld_by_parts", study).frame.set_index(["arm", "hops", "answer"])
    assert frame.loc[("search-r1", 2, "name"), ["n", "seeds", "em", "turns"]].to_list() == [24, 2, 0.75, 3]
    assert frame.loc[("parallelsearch", 3, "name"), ["n", "em", "decomposition_ratio"]].to_list() == [16, 0.75, 1]
    assert [kind_of_answer([text]) for text in ("Yes", "no", "1.5 million", "12,000", "7", "Oslo", "1. FC Köln")] == [
        "yes", "no", "number", "number", "number", "name", "name",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["accuracy_by_budget", "gain"])
def test_figures_of_budgets_show_the_tables_numbers(name: str, study: Study, tmp_path: Path) -> None:
    drawing = figures.build(name, study)
    data = drawing.data
    if name == "gain":
        found = data[(data["figure"] == "em_unlimited") & (data["arm"] == "search-r1")].set_index("hops")["value"]
        calls = data[(data["figure"] == "llm_calls") & (data["arm"] == "search-r1")].set_index("hops")["value"]
        assert found.to_dict() == {"2": 0.75, "3": 1} and calls.to_dict() == {"2": 3, "3": 4}
    else:
        assert len(drawing.figure.axes) == 4  # two numbers of parts, two kinds of budget
        assert all(axis.get_ylim()[0] <= 0 and axis.get_ylim()[1] >= 1 for axis in drawing.figure.axes)
        table = tables.build("geoworld_by_budget", study).frame
        assert data["em"].to_list() == table["em"].to_list()
    assert all(path.stat().st_size for path in write_drawing(drawing, tmp_path / name))


def test_without_other_budgets_there_is_no_such_figure(tmp_path: Path) -> None:
    alone = read_study([write_arm(tmp_path, "geoworld.test", "search-r1", 0, THEIRS)], json.dumps(SETTINGS))
    with pytest.raises(DataError, match="no episodes without the study's limits"):
        figures.build("accuracy_by_budget", alone)
    with pytest.raises(DataError, match="no arm has answered parallel questions beside the baseline"):
        figures.build("gain", alone)


def test_every_column_is_explained(study: Study) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "reading-the-tables.md").read_text()
    columns = {column for kind in ("budget", "parts") for column in tables.build(f"geoworld_by_{kind}", study).frame}
    plain = {column.removesuffix("_low").removesuffix("_high").removesuffix("_difference") for column in columns}
    assert {column for column in plain - {"arm"} if f"`{column}`" not in guide} == set()
