"""Checkouts of the workflow that tests may edit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import Checkout
from slurm_node import SlurmNode, slurm_node
from slurm_study import SmokeStudy


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
def slurm() -> Iterator[SlurmNode]:
    """A Slurm with one node on this machine, for the tests that are marked so."""
    with slurm_node() as node:
        yield node


@pytest.fixture(scope="session")
def slurm_study(tmp_path_factory: pytest.TempPathFactory, slurm: SlurmNode) -> SmokeStudy:
    """The smoke study, run through that Slurm."""
    return SmokeStudy(tmp_path_factory.mktemp("slurm-smoke"), slurm)
