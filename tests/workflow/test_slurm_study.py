"""`snakemake --profile slurm all` on a real Slurm: the smoke study, every stage in jobs of its own."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import pytest
from checkout import Checkout, Plan
from slurm_node import SlurmJob, SlurmNode

pytestmark = pytest.mark.slurm

SMOKE = ("--configfile", "config/smoke.yaml", "--", "all")
RESULTS = "results-smoke"
# What runs beside Snakemake itself: what may need the net, and what opens MLflow's SQLite file.
LOCAL = {"study_config", "export_encoder", "track_init", "track_collect", "all"}


class Study:
    """The finished smoke study: its checkout, what was planned, and Slurm's jobs."""

    def __init__(self, root: Path, node: SlurmNode) -> None:
        self.checkout = Checkout(root)
        self.results = root / RESULTS
        self.node = node
        self.plan: Plan = self.checkout.plan("--profile", "slurm", *SMOKE)
        self.log = root / "snakemake.log"
        self.code = node.workflow(root, *SMOKE, log=self.log, timeout=3600)
        self.jobs: list[SlurmJob] = node.jobs()


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, slurm: SlurmNode) -> Study:
    return Study(tmp_path_factory.mktemp("slurm-smoke"), slurm)


def test_the_literal_command_ends_well_and_leaves_the_main_table(study: Study) -> None:
    assert study.code == 0, study.log.read_text()[-6000:]
    with (study.results / "tables" / "geoworld_by_structure.csv").open() as stream:
        assert {row["arm"] for row in csv.DictReader(stream)} == {"warm-start", "search-r1", "parallelsearch"}
    assert (study.results / "report" / "index.html").stat().st_size > 10_000
    for arm in ("search-r1", "parallelsearch"):
        assert json.loads((study.results / "train" / arm / "seed0" / "done.json").read_text())["steps"] == 2


def test_every_job_but_the_local_ones_went_through_sbatch_once_and_completed(study: Study) -> None:
    planned = Counter({rule: count for rule, count in study.plan.counts.items() if rule not in LOCAL})
    for target in ("tables", "figures", "report"):
        planned.pop(target, None)
    assert study.plan.counts.keys() >= LOCAL
    longest_first = sorted(planned, key=len, reverse=True)
    seen = Counter(next(rule for rule in longest_first if job.rule.startswith(rule)) for job in study.jobs)
    assert seen == planned
    assert {job.state for job in study.jobs} == {"COMPLETED"}
    ended = (study.node.folder / "jobs.txt").read_text()
    assert all(f"JobId={job.number} " in ended for job in study.jobs)


def test_no_job_of_a_study_without_gpus_went_to_the_partition_with_gpus(study: Study) -> None:
    assert {job.partition for job in study.jobs} == {"cpu"}


def test_logs_are_where_the_documentation_says(study: Study) -> None:
    [training] = [job for job in study.jobs if job.rule.startswith("train") and "parallelsearch" in job.rule]
    around = list((study.checkout.root / "logs" / "slurm").glob(f"rule_train/*/{training.number}.log"))
    assert len(around) == 1 and "Training parallelsearch" in around[0].read_text()
    own = (study.results / "logs" / "train" / "parallelsearch.seed0.log").read_text()
    assert "step 2: reward" in own
    assert (study.results / "train" / "parallelsearch" / "seed0" / "verl.log").stat().st_size > 0


def test_the_finished_study_has_nothing_left_to_submit(study: Study) -> None:
    assert "Nothing to be done" in study.checkout.plan("--profile", "slurm", *SMOKE).output
