"""The tables of a study over real questions, against figures computed from the episodes in another way."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import real_study
import yaml
from scipy.stats import binomtest

from parallelsearch.config_files import read_yaml
from parallelsearch.errors import ConfigError, DataError
from parallelsearch.plan.planning import DATASET_TABLES
from parallelsearch.report import tables
from parallelsearch.report.published import PARALLELSEARCH, PUBLISHED_DIR
from parallelsearch.report.study import Study, read_study
from parallelsearch.report.table import markdown, write_table

SETTINGS = json.dumps({"arms": list(real_study.ARMS), "baseline": "search-r1"})


@pytest.fixture(scope="module")
def study(study_files: real_study.RealStudy) -> Study:
    return read_study(study_files.inputs, SETTINGS)


def test_the_main_table_has_exactly_these_columns_and_all_groups(study: Study) -> None:
    frame = tables.build("hotpotqa_by_structure", study).frame
    assert list(frame.columns) == [
        "arm", "seed", "structure", "n", "em", "em_low", "em_high", "f1", "decomposition_ratio", "turns",
        "llm_calls", "searches", "seconds",
    ]  # fmt: skip
    assert list(frame["arm"].unique()) == ["warm-start", *real_study.ARMS]
    assert len(frame) == 5 * 2 * 2
    assert not frame.duplicated(["arm", "seed", "structure"]).any()


def test_every_figure_of_the_main_table_follows_from_the_episodes_file(
    study: Study, study_files: real_study.RealStudy
) -> None:
    frame = tables.build("hotpotqa_by_structure", study).frame.set_index(["arm", "seed", "structure"])
    for path in study_files.episodes:
        rows = pq.read_table(path).to_pandas()
        rows = rows[rows["stop_reason"] != "retriever_error"]
        for structure, group in rows.groupby("structure"):
            row = frame.loc[rows["arm"].iloc[0], rows["seed"].iloc[0], structure]
            right = sum(
                answer == gold[0] for answer, gold in zip(group["answer"], group["golden_answers"], strict=True)
            )
            interval = binomtest(right, len(group)).proportion_ci(method="wilson")
            assert row["n"] == len(group)
            assert row["em"] == pytest.approx(right / len(group))
            assert (row["em_low"], row["em_high"]) == pytest.approx((interval.low, interval.high))
            parallel = [any(len(turn["sub_queries"]) > 1 for turn in turns) for turns in group["turns"]]
            assert row["decomposition_ratio"] == pytest.approx(sum(parallel) / len(group))
            assert row["turns"] == row["llm_calls"] == pytest.approx(sum(map(len, group["turns"])) / len(group))
            assert row["seconds"] == pytest.approx(group["seconds"].mean())


def test_notes_name_corpus_index_top_k_questions_and_failures(study: Study) -> None:
    text = markdown(tables.build("hotpotqa_by_structure", study))
    assert "Corpus hotpotqa-contexts sha256 333333333333; index flat sha256 222222222222; top-k 2" in text
    assert "questions sha256 444444444444; decoding: temperature 0.0" in text
    assert "Infrastructure failures: no-search-count-reward 2." in text


@pytest.mark.parametrize(
    ("semantics", "algorithm", "a_cell"),
    [("paper", "ppo", True), ("released", "ppo", True), ("bounded", "ppo", False), ("stepsearch", "ppo", False),
     ("paper", "grpo", False)],
)  # fmt: skip
def test_only_the_papers_reward_trained_with_ppo_is_a_cell_of_its_table_4(
    semantics: str, algorithm: str, a_cell: bool, study: Study, tmp_path: Path
) -> None:
    """Another reward has the same lambda_d and lambda_s by default, and does not look at them."""
    folders = []
    for folder in study.run_folders:
        copy = tmp_path / folder.parent.name / folder.name
        shutil.copytree(folder, copy)
        config = read_yaml(copy / "config.yaml")
        config["reward"]["semantics"] = semantics
        config.setdefault("training", {})["algorithm"] = algorithm
        (copy / "config.yaml").write_text(yaml.safe_dump(config))
        folders.append(copy)
    changed = dataclasses.replace(study, run_folders=tuple(folders))
    frame = tables.build("ablation_grid", changed).frame.set_index(["arm", "seed", "structure"])
    assert pd.notna(frame.loc["parallelsearch", 0, "parallel"]["hotpotqa_em_published"]) is a_cell


def test_the_ablation_grid_has_weights_differences_and_the_published_row(study: Study) -> None:
    table = tables.build("ablation_grid", study)
    frame = table.frame.set_index(["arm", "seed", "structure"])
    ours = frame.loc["parallelsearch", 0, "parallel"]
    assert (ours["lambda_d"], ours["lambda_s"], ours["semantics"]) == (0.15, 0.35, "paper")
    # Table 4: .656 94.30 2.08 | .650 99.75 2.03
    published = ["hotpotqa_em", "hotpotqa_decomposition_ratio", "hotpotqa_turns", "2wiki_em", "2wiki_turns"]
    assert [ours[f"{name}_published"] for name in published] == [0.656, 0.943, 2.08, 0.650, 2.03]
    base = frame.loc["search-r1", 0, "parallel"]
    assert ours["em_difference"] == pytest.approx(ours["em"] - base["em"])
    assert ours["turns_difference_low"] <= ours["turns_difference"] <= ours["turns_difference_high"] < 0
    assert pd.isna(base["em_difference"])
    assert pd.isna(base["hotpotqa_em_published"])  # (0, 0) was not published
    assert pd.isna(frame.loc["parallelsearch", 0, "sequential"]["hotpotqa_em_published"])
    assert "warm-start" not in table.frame["arm"].to_list()
    assert any("another data set" in note for note in table.notes)


def test_the_comparison_has_tests_and_the_main_table_says_what_they_could_have_found(study: Study) -> None:
    frame = tables.build("hotpotqa_comparison", study).frame
    assert len(frame) == 4 * 2 * 2  # every arm but the baseline, seeds, structures
    assert (frame["em_p_holm"] >= frame["em_p"]).all()
    notes = tables.build("hotpotqa_by_structure", study).notes
    largest = frame[frame["structure"] == "parallel"]["em_detectable"].max()
    assert any("found with 80% probability" in note and f"parallel {largest:.3f}" in note for note in notes)


def test_the_details_table_has_all_intervals_and_the_baseline_is_not_compared_with_itself(study: Study) -> None:
    frame = tables.build("hotpotqa_details", study).frame
    assert {"turns_low", "seconds_high", "gold_recall", "well_formed", "failures", "em_p"} <= set(frame.columns)
    assert frame.loc[frame["arm"] == "search-r1", "em_p"].isna().all()
    assert (frame.loc[frame["arm"] == "parallelsearch", "pairs"] > 0).all()


def test_over_seeds_has_one_row_for_each_arm_and_structure(study: Study) -> None:
    frame = tables.build("hotpotqa_over_seeds", study).frame
    assert len(frame) == 5 * 2
    main = tables.build("hotpotqa_by_structure", study).frame
    for row in frame.to_dict("records"):
        same = main[(main["arm"] == row["arm"]) & (main["structure"] == row["structure"])]
        assert row["em"] == pytest.approx(same["em"].mean())
        assert row["em_sd"] == pytest.approx(same["em"].std())


def test_the_training_summary_averages_first_and_last_five_steps(
    study: Study, study_files: real_study.RealStudy
) -> None:
    frame = tables.build("training_summary", study).frame.set_index(["arm", "seed"])
    assert len(frame) == 4 * 2
    steps = [json.loads(line) for line in (study_files.runs[0] / "metrics.jsonl").read_text().splitlines()]
    row = frame.loc["search-r1", 0]
    assert row["steps"] == len(steps) == 20
    assert row["seconds"] == pytest.approx(sum(step["seconds"] for step in steps))
    assert row["reward_first"] == pytest.approx(sum(step["reward_mean"] for step in steps[:5]) / 5)
    assert row["decomposition_ratio_last"] == pytest.approx(sum(s["decomposition_ratio"] for s in steps[-5:]) / 5)
    assert row["well_formed_last"] == pytest.approx(sum(step["well_formed"] for step in steps[-5:]) / 5)
    assert row["complete"] == "yes"


def test_every_column_of_every_table_is_explained(study: Study) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "reading-the-tables.md").read_text()
    endings = re.findall(r"^\| ((?:`_\w+`(?:, )?)+) \|", guide, re.MULTILINE)
    endings = [ending for cell in endings for ending in re.findall(r"`(_\w+)`", cell)]
    assert len(endings) == 12
    unexplained = set()
    for name in [
        *(f"hotpotqa{suffix}" for suffix in DATASET_TABLES if suffix != "_by_budget"),
        "em_by_dataset",
        "ablation_grid",
        "training_summary",
    ]:
        for column in tables.build(name, study).frame.columns:
            plain = column.removeprefix("hotpotqa_").removeprefix("2wiki_")
            while ending := next((end for end in endings if plain.endswith(end)), ""):
                plain = plain.removesuffix(ending)
            if f"`{plain}`" not in guide and plain not in ("arm", "seed", *study.datasets):
                unexplained.add(column)
    assert unexplained == set()


def test_mistakes_are_told_in_one_sentence(study: Study, study_files: real_study.RealStudy) -> None:
    with pytest.raises(DataError, match="no table 'ablation'; known tables: em_by_dataset, ablation_grid"):
        tables.build("ablation", study)
    with pytest.raises(DataError, match="no episode of geoworld; the given files hold hotpotqa"):
        tables.build("geoworld_by_structure", study)
    with pytest.raises(DataError, match="no training run was given"):
        tables.build("ablation_grid", read_study(study_files.episodes, SETTINGS))
    with pytest.raises(DataError, match="no episodes file was given"):
        tables.build("hotpotqa_details", read_study(study_files.runs, SETTINGS))
    with pytest.raises(DataError, match="neither an episodes file"):
        read_study([Path("notes.txt")], SETTINGS)
    with pytest.raises(ConfigError, match="unknown key 'base'"):
        read_study(study_files.inputs, '{"base": "search-r1"}')
    with pytest.raises(ConfigError, match="not valid JSON"):
        read_study(study_files.inputs, "baseline=x")


def test_two_splits_of_a_data_set_are_not_mixed(
    tmp_path: Path, study_files: real_study.RealStudy, study: Study
) -> None:
    other = tmp_path / "episodes.parquet"
    table = pq.read_table(study_files.episodes[0])
    index = table.schema.get_field_index("split")
    pq.write_table(table.set_column(index, table.schema.field(index), [["train"] * len(table)]), other)
    with pytest.raises(DataError, match="of the splits dev, train"):
        tables.build("hotpotqa_by_structure", read_study([*study_files.episodes, other], SETTINGS))


def test_published_numbers_stand_beside_ours_with_their_distance(study: Study) -> None:
    table = tables.build("hotpotqa_published", study)
    frame = table.frame
    row = frame[(frame["table"] == 3) & (frame["method"] == "ParallelSearch") & (frame["seed"] == 1)]
    row = row[(row["model"] == "Qwen2.5-7B-Instruct")].iloc[0]
    main = tables.build("hotpotqa_by_structure", study).frame.set_index(["arm", "seed", "structure"])
    ours = main.loc[("parallelsearch", 1, "parallel")]
    assert (row["arm"], row["n"], row["em"]) == ("parallelsearch", ours["n"], ours["em"])
    assert row["em_published"] == 0.656
    assert row["em_distance"] == pytest.approx(ours["em"] - 0.656)
    assert row["em_within"] == ("yes" if ours["em_low"] <= 0.656 <= ours["em_high"] else "no")
    assert row["turns_distance"] == pytest.approx(ours["turns"] - 2.08)
    whole = frame[(frame["table"] == 2) & (frame["method"] == "ParallelSearch") & (frame["seed"] == 0)].iloc[0]
    parts = main.loc[("parallelsearch", 0)]
    assert whole["n"] == parts["n"].sum()
    assert whole["em"] == pytest.approx((parts["em"] * parts["n"]).sum() / parts["n"].sum())
    alone = frame[frame["method"] == "ZeroSearch"]
    assert alone["arm"].isna().all() and alone["em"].isna().all() and (alone["em_published"] > 0).all()
    used = {key for keys in frame["caveats"] for key in keys.split(", ")}
    for key in used:
        assert any(f", {key}: " in note for note in table.notes), key


def test_a_changed_published_number_changes_that_table_alone(study: Study, tmp_path: Path) -> None:
    folder = tmp_path / "published"
    shutil.copytree(PUBLISHED_DIR, folder)
    file = folder / PARALLELSEARCH
    file.write_text(file.read_text(encoding="utf-8").replace("HotpotQA: 0.429", "HotpotQA: 0.999"), encoding="utf-8")
    before, after = (tables.build("hotpotqa_published", study, place).frame for place in (PUBLISHED_DIR, folder))
    changed = before.compare(after)
    assert set(changed.columns.get_level_values(0)) <= {"em_published", "em_distance", "em_within"}
    assert (after.loc[changed.index, "em_published"] == 0.999).all() and len(changed) > 0
    for name in ("hotpotqa_by_structure", "hotpotqa_comparison", "ablation_grid"):
        assert tables.build(name, study, PUBLISHED_DIR).frame.equals(tables.build(name, study, folder).frame)


def test_a_data_set_without_published_numbers_says_so(study: Study, tmp_path: Path) -> None:
    table = tables.build("hotpotqa_published", study, tmp_path)
    assert table.frame.empty and any("No published number of hotpotqa" in note for note in table.notes)
    assert [path.suffix for path in write_table(table, tmp_path / "t")] == [".csv", ".md", ".tex"]


def test_the_published_protocol_has_rows_of_its_own_and_enters_no_other_table(
    study_files: real_study.RealStudy, study: Study, tmp_path: Path
) -> None:
    source = next(path for path in study_files.episodes if "/parallelsearch/seed0/" in str(path))
    copy = tmp_path / "eval" / "parallelsearch" / "seed0" / "hotpotqa.dev.published" / "episodes.parquet"
    copy.parent.mkdir(parents=True)
    pq.write_table(pq.read_table(source).slice(0, 20), copy)  # the metadata of the schema goes along
    both = read_study([*study_files.inputs, copy], SETTINGS)
    frame = tables.build("hotpotqa_published", both).frame
    whole = frame[(frame["table"] == 2) & (frame["method"] == "ParallelSearch")]
    by_protocol = whole[whole["model"] == "Qwen2.5-7B"].groupby("protocol")["n"].agg(["count", "max"])
    assert by_protocol.loc["published"].to_list() == [1, 20]
    assert by_protocol.loc["ours", "count"] == 2  # seeds
    assert tables.build("hotpotqa_by_structure", both).frame.equals(tables.build("hotpotqa_by_structure", study).frame)


def test_em_by_dataset_is_the_mean_over_all_questions_and_the_average_counts_each_set_once(
    study_files: real_study.RealStudy, tmp_path: Path
) -> None:
    arm = [path for path in study_files.episodes if "/parallelsearch/seed0/" in str(path)]
    table = pq.read_table(arm[0])
    small = table.slice(0, 4)
    column = table.schema.get_field_index("dataset")
    renamed = small.set_column(column, table.schema.field("dataset"), pa.array(["2wikimultihopqa"] * 4))
    other = tmp_path / "episodes.parquet"
    pq.write_table(renamed, other)
    frame = tables.build("em_by_dataset", read_study([*arm, other], SETTINGS)).frame
    (row,) = frame.to_dict("records")
    right = [sum(part["em"].to_pylist()) / len(part) for part in (small, table)]
    assert (row["2wikimultihopqa"], row["hotpotqa"]) == pytest.approx(right)
    assert row["average"] == pytest.approx(sum(right) / 2)
