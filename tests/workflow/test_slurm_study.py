"""`snakemake --profile slurm all` on a real Slurm: the smoke study, every stage in jobs of its own."""

from __future__ import annotations

import csv
import json
from collections import Counter

import pytest
from slurm_study import SMOKE, SmokeStudy

pytestmark = pytest.mark.slurm

# What runs beside Snakemake itself: what may need the net, and what opens MLflow's SQLite file.
LOCAL = {"study_config", "export_encoder", "track_init", "track_collect", "all"}


def test_the_literal_command_ends_well_and_leaves_the_main_table(slurm_study: SmokeStudy) -> None:
    assert slurm_study.code == 0, slurm_study.log.read_text()[-6000:]
    with (slurm_study.results / "tables" / "geoworld_by_structure.csv").open() as stream:
        assert {row["arm"] for row in csv.DictReader(stream)} == {"warm-start", "search-r1", "parallelsearch"}
    assert (slurm_study.results / "report" / "index.html").stat().st_size > 10_000
    for arm in ("search-r1", "parallelsearch"):
        assert json.loads((slurm_study.results / "train" / arm / "seed0" / "done.json").read_text())["steps"] == 2


def test_every_job_but_the_local_ones_went_through_sbatch_once_and_completed(slurm_study: SmokeStudy) -> None:
    assert slurm_study.plan.counts.keys() >= LOCAL
    planned = Counter({rule: count for rule, count in slurm_study.plan.counts.items() if rule not in LOCAL})
    longest_first = sorted(planned, key=len, reverse=True)
    seen = Counter(next(rule for rule in longest_first if job.rule.startswith(rule)) for job in slurm_study.jobs)
    assert seen == planned
    assert {job.state for job in slurm_study.jobs} == {"COMPLETED"}
    assert all(slurm_study.node.ended(job)["JobState"] == "COMPLETED" for job in slurm_study.jobs)


def test_no_job_of_a_study_without_gpus_went_to_the_partition_with_gpus(slurm_study: SmokeStudy) -> None:
    assert {job.partition for job in slurm_study.jobs} == {"cpu"}


def test_jobs_asked_for_what_their_work_needs(slurm_study: SmokeStudy) -> None:
    training = next(job for job in slurm_study.jobs if job.rule.startswith("train"))
    # 5,000 MB and 28 bytes for each of 131,072 parameters; the shortest limit, half an hour; two cores.
    asked = slurm_study.node.ended(training)
    assert (asked["Tres"], asked["TimeLimit"]) == ("cpu=2,mem=5004M,node=1,billing=2", "30")
    table = next(job for job in slurm_study.jobs if job.rule.startswith("table"))
    assert "mem=1000M" in slurm_study.node.ended(table)["Tres"]


def test_logs_are_where_the_documentation_says(slurm_study: SmokeStudy) -> None:
    [training] = [job for job in slurm_study.jobs if job.rule.startswith("train") and "parallelsearch" in job.rule]
    around = list((slurm_study.root / "logs" / "slurm").glob(f"rule_train/*/{training.number}.log"))
    assert len(around) == 1 and "Training parallelsearch" in around[0].read_text()
    own = (slurm_study.results / "logs" / "train" / "parallelsearch.seed0.log").read_text()
    assert "step 2: reward" in own
    assert (slurm_study.results / "train" / "parallelsearch" / "seed0" / "verl.log").stat().st_size > 0


def test_the_finished_study_has_nothing_left_to_submit(slurm_study: SmokeStudy) -> None:
    assert "Nothing to be done" in slurm_study.checkout.plan("--profile", "slurm", *SMOKE, "--", "all").output
