"""Which jobs Snakemake plans: of the whole study, of single targets, and after a change."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from checkout import Checkout

ARMS = ["search-r1", "parallelsearch"]
COLLECTORS = {"figure", "findings", "report_page", "study_config", "table", "track_collect"}
EPISODES = "results/eval/parallelsearch/seed0/geoworld.test/episodes.parquet"


def test_the_default_study_trains_every_arm_once_and_evaluates_them_and_the_warm_start(
    checkout: Checkout, record_property: Callable[[str, object], None]
) -> None:
    begun = time.monotonic()
    plan = checkout.plan("all")
    record_property("planning_seconds", round(time.monotonic() - begun, 1))
    assert {job for job in plan.jobs if job.startswith("train ")} == {f"train {arm} 0" for arm in ARMS}
    assert {job for job in plan.jobs if job.startswith("evaluate ")} == {
        f"evaluate {arm} 0" for arm in [*ARMS, "warm-start"]
    }
    assert plan.counts["train"] == 2 and plan.counts["warm_start"] == 1 and plan.counts["build_index"] == 1
    assert plan.counts["track_init"] == 1 and plan.counts.keys() >= COLLECTORS
    assert "download" not in plan.counts
    assert not re.search(r"\{\w+\}", plan.output)  # a wildcard that was not filled in


def test_three_seeds_are_three_warm_starts_and_three_trainings_of_each_arm(checkout: Checkout) -> None:
    plan = checkout.plan("all", "--configfile", "config/study.yaml")
    assert (plan.counts["warm_start"], plan.counts["train"], plan.counts["evaluate"]) == (3, 12, 15)
    assert plan.counts["evaluate_unlimited"] == 15
    assert {f"train search-r1 {seed}" for seed in (0, 1, 2)} <= plan.jobs
    assert (plan.counts["geoworld"], plan.counts["build_index"]) == (1, 1)


INDEX_RULES = {
    "bm25": {"build_bm25"},
    "hybrid": {"export_encoder", "embed", "embed_manifest", "build_index", "build_bm25", "fuse_indexes"},
}


@pytest.mark.parametrize("kind", INDEX_RULES)
def test_each_kind_of_index_takes_the_jobs_that_it_needs_and_no_others(checkout: Checkout, kind: str) -> None:
    every = set.union(*INDEX_RULES.values()) | {"export_reranker", "rerank_index"}
    plan = checkout.plan("all", "--config", f"index={{kind: {kind}}}")
    assert {rule: n for rule, n in plan.counts.items() if rule in every} == dict.fromkeys(INDEX_RULES[kind], 1)
    assert (plan.counts["train"], plan.counts["evaluate"], plan.counts["build_corpus"]) == (2, 3, 1)
    reranked = checkout.plan("all", "--config", f"index={{kind: {kind}, reranker: {{model: ms-marco-minilm-l6-v2}}}}")
    assert reranked.counts == plan.counts | {"export_reranker": 1, "rerank_index": 1}


def test_one_table_alone_needs_all_episodes_and_nothing_that_is_drawn_or_tracked(checkout: Checkout) -> None:
    plan = checkout.plan("results/tables/geoworld_by_structure.csv")
    assert (plan.counts["table"], plan.counts["evaluate"], plan.counts["train"]) == (1, 3, 2)
    assert not {"figure", "report_page", "track_collect", "study_config"} & plan.counts.keys()


def test_one_arm_alone_is_a_target_by_name_and_by_file(checkout: Checkout) -> None:
    by_file, by_name = checkout.plan(EPISODES), checkout.plan("arm_parallelsearch")
    for plan in (by_file, by_name):
        assert {job for job in plan.jobs if job.split()[0] in ("train", "evaluate")} == {
            "train parallelsearch 0",
            "evaluate parallelsearch 0",
        }
    assert by_name.counts.pop("arm_parallelsearch") == 1
    assert by_name.counts == by_file.counts


def test_an_ablation_cell_that_the_study_does_not_list_can_be_a_target(checkout: Checkout) -> None:
    plan = checkout.plan(EPISODES.replace("parallelsearch", "d0.35-s0.35"))
    assert {"train d0.35-s0.35 0", "evaluate d0.35-s0.35 0"} <= plan.jobs
    assert plan.counts["train"] == 1


def test_an_arm_with_the_policy_of_another_waits_for_its_training_and_trains_nothing_itself(checkout: Checkout) -> None:
    plan = checkout.plan(EPISODES.replace("parallelsearch", "search-r1-parallel-prompt"))
    assert {job for job in plan.jobs if job.split()[0] in ("train", "evaluate")} == {
        "train search-r1-original-prompt 0",
        "evaluate search-r1-parallel-prompt 0",
    }
    [command] = [line for line in plan.output.splitlines() if "parallelsearch evaluate" in line]
    assert "--policy results/train/search-r1-original-prompt/seed0 " in command
    assert '"prompt":"parallel"' in command


def test_an_unknown_arm_as_a_target_is_refused_with_the_known_ones(checkout: Checkout) -> None:
    done = checkout.snakemake("-n", EPISODES.replace("parallelsearch", "paralelsearch"))
    assert done.returncode != 0
    assert "'paralelsearch'" in done.stdout
    assert all(arm in done.stdout for arm in ARMS)


def test_a_finished_study_has_nothing_to_do(finished: Checkout) -> None:
    plan = finished.plan("all")
    assert "Nothing to be done" in plan.output
    assert not plan.jobs


def test_pythons_own_cache_beside_the_code_makes_nothing_run_again(finished: Checkout) -> None:
    cache = finished.root / "src" / "parallelsearch" / "report" / "__pycache__"
    cache.mkdir(exist_ok=True)
    (cache / "figures.cpython-311.pyc").write_bytes(b"compiled")
    assert "Nothing to be done" in finished.plan("all").output


def test_another_lambda_d_of_one_arm_reschedules_its_training_its_evaluation_and_the_collectors(
    finished: Checkout,
) -> None:
    overlay = "config/arms/parallelsearch.yaml"
    finished.edit(overlay, "lambda_d: 0.15", "lambda_d: 0.25")
    try:
        plan = finished.plan("all")
    finally:
        finished.edit(overlay, "lambda_d: 0.25", "lambda_d: 0.15")
    assert plan.counts.keys() == {"train", "evaluate", "evaluate_unlimited", "all"} | COLLECTORS
    assert {job for job in plan.jobs if job.split()[0] in ("train", "evaluate")} == {
        "train parallelsearch 0",
        "evaluate parallelsearch 0",
    }


def test_another_description_of_an_arm_trains_nothing(finished: Checkout) -> None:
    overlay = "config/arms/parallelsearch.yaml"
    finished.edit(overlay, "description: The", "description: A")
    try:
        plan = finished.plan("all")
    finally:
        finished.edit(overlay, "description: A", "description: The")
    assert plan.counts.keys() <= COLLECTORS | {"all"} and plan.counts


def test_another_budget_makes_the_report_again_and_answers_nothing(finished: Checkout) -> None:
    plan = finished.plan("all", "--config", "evaluation={budgets: {llm_calls: [2, 4, 7]}}")
    assert plan.counts.keys() <= COLLECTORS | {"all"} and {"table", "findings"} <= plan.counts.keys()


def test_one_more_question_set_evaluates_every_policy_on_it_and_trains_nothing(finished: Checkout) -> None:
    plan = finished.plan("all", "--config", "evaluation={sets: [geoworld.test, geoworld.dev]}")
    assert (plan.counts["evaluate"], plan.counts["import_questions"]) == (3, 1)
    assert not {"train", "warm_start", "embed", "geoworld"} & plan.counts.keys()


def test_deleted_figures_are_drawn_again_and_nothing_is_retrained(finished: Checkout) -> None:
    for figure in (finished.root / "results" / "figures").iterdir():
        figure.unlink()
    plan = finished.plan("figures")
    finished.finish("figures")
    assert plan.counts == {"figure": 10, "figures": 1}


def test_changed_drawing_code_redraws_and_retrains_nothing(finished: Checkout) -> None:
    code = finished.root / "src" / "parallelsearch" / "report" / "figures.py"
    before = code.read_text()
    code.write_text(before + "\n# another colour\n")
    try:
        plan = finished.plan("all")
    finally:
        code.write_text(before)
    assert plan.counts.keys() == {"table", "figure", "findings", "report_page", "track_collect", "all"}


def test_a_reworded_command_retrains_nothing(finished: Checkout) -> None:
    rules = "workflow/rules/train.smk"
    finished.edit(rules, "parallelsearch train {params", "exec parallelsearch train {params")
    try:
        plan = finished.plan("all")
    finally:
        finished.edit(rules, "exec parallelsearch train {params", "parallelsearch train {params")
    assert "Nothing to be done" in plan.output


def test_training_declares_only_its_final_marker_so_that_checkpoints_outlive_a_killed_job(checkout: Checkout) -> None:
    listed = checkout.snakemake("--summary", "arm_parallelsearch").stdout.splitlines()
    made = [Path(line.split("\t")[0]) for line in listed if line.split("\t")[2:3] == ["train"]]
    assert made == [Path("results/train/parallelsearch/seed0/done.json")]


def test_the_slurm_profile_plans_the_papers_study_with_its_gpus_and_without_any_raw_file(checkout: Checkout) -> None:
    plan = checkout.plan("--profile", "slurm", "all")
    assert "Config file(s): ['config/paper.yaml']" in plan.output or "config/paper.yaml" in plan.output
    assert plan.counts["train"] == 16  # 9 of the paper's, 5 of other methods' rewards, 2 that learn from demonstrations
    assert plan.counts["embed"] == 33  # 32 shards of wiki-18, one of MultiHop-RAG
    assert plan.counts["evaluate"] == 24 * 8  # 16 trained arms, one with the policy of another, 7 untrained ones
    assert plan.counts["download"] == 13
    assert plan.output.count("seed 0 (nodes: 1, GPUs of each: 8)") == 16
    assert "warm_start" not in plan.counts


def test_one_machine_bounds_the_memory_of_its_jobs_and_the_slurm_profile_does_not(checkout: Checkout) -> None:
    checkout.edit("workflow/rules/train.smk", "(nodes: {resources.nodes}", "(MB: {resources.mem_mb}")
    on_slurm = checkout.plan("--profile", "slurm", "all").output
    assert "Training parallelsearch, seed 0 (MB: 489568," in on_slurm  # tests/plan/test_job_needs.py has it by hand
    here = checkout.plan("all", "--resources", "mem_mb=4500").output
    assert "Training parallelsearch, seed 0 (MB: 4500," in here
    assert "Training parallelsearch, seed 0 (MB: 5025," in checkout.plan("all").output


@pytest.mark.parametrize("study", ["smoke", "study"])
def test_every_shipped_study_plans(checkout: Checkout, study: str) -> None:
    assert checkout.plan("all", "--configfile", f"config/{study}.yaml").counts["geoworld"] == 1


def test_a_cell_of_the_ablation_grid_over_the_papers_study_is_a_target(checkout: Checkout) -> None:
    studies = ("--configfile", "config/paper.yaml", "config/ablations.yaml", "--")
    plan = checkout.plan(*studies, "results-paper/eval/alpha-1/seed0/hotpotqa.dev/episodes.parquet")
    assert {"train alpha-1 0", "evaluate alpha-1 0"} <= plan.jobs
    assert plan.counts["train"] == 1
    assert checkout.plan(*studies, "all").counts["train"] == 14


def test_jobs_on_gpus_find_their_commands_in_the_environment_that_is_named(finished: Checkout) -> None:
    """A folder with one command that says how it was called; the job of a CPU does not look there."""
    commands = finished.root / "envs of mine" / "gpu" / "bin"
    commands.mkdir(parents=True)
    (commands / "parallelsearch").write_text('#!/bin/sh\necho "called: $*"\nexit 3\n')
    (commands / "parallelsearch").chmod(0o755)
    named, log = "environments={gpu: envs of mine/gpu}", "results/logs/evaluate/parallelsearch.seed0.geoworld.test.log"
    assert "Nothing to be done" in finished.plan(EPISODES, "--config", named).output
    done = finished.snakemake(EPISODES, "--cores", "1", "--config", named, "evaluation={device: cuda}")
    assert done.returncode != 0
    assert f"called: evaluate {EPISODES} --arm parallelsearch" in (finished.root / log).read_text()
    finished.finish(EPISODES)  # which Snakemake removed
