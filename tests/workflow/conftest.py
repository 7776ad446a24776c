"""Checkouts of the workflow that tests may edit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import Checkout
from slurm_node import SlurmNode, slurm_node
from slurm_study import SmokeStudy
from training_job import INDEX, POLICY, QUESTIONS, TrainingJob
from undisturbed_run import SIZES


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout whose whole study is finished; a test undoes what it edits."""
    checkout = Checkout(tmp_path_factory.mktemp("finished"))
    checkout.finish("all")
    return checkout


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the smoke study's index, questions and warm-started policy; ARM_JOBS names one made before."""
    if os.environ.get("ARM_JOBS"):
        return Path(os.environ["ARM_JOBS"])
    checkout = Checkout(tmp_path_factory.mktemp("made"))
    targets = (f"{INDEX}/manifest.json", QUESTIONS, f"{POLICY}/done.json")
    smoke = ("--configfile", "config/smoke.yaml", "--config", "results=results")
    done = checkout.snakemake(*targets, *smoke, timeout=900)
    assert done.returncode == 0, done.stdout[-6000:]
    return checkout.root


@pytest.fixture(scope="session")
def undisturbed(made: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingJob:
    """A run of four steps that nothing disturbed."""
    job = TrainingJob(made, tmp_path_factory.mktemp("undisturbed") / "run", "parallelsearch", SIZES)
    code, said = job.run()
    assert code == 0, said
    return job


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmNode]:
    """A Slurm with one node on this machine, for the tests that are marked so."""
    with slurm_node() as node:
        yield node


@pytest.fixture(scope="session")
def slurm_study(tmp_path_factory: pytest.TempPathFactory, slurm: SlurmNode) -> SmokeStudy:
    """The smoke study, run through that Slurm."""
    return SmokeStudy(tmp_path_factory.mktemp("slurm-smoke"), slurm)
