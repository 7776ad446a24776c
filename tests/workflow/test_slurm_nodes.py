"""One training job on two nodes: Ray is started inside the allocation and both nodes hold a rank."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from slurm_node import SlurmNode, processes, slurm_node, wait_until
from slurm_study import SmokeStudy, Training

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[SlurmNode]:
    with slurm_node(nodes=2) as node:
        yield node


def test_ray_runs_on_both_nodes_of_the_allocation_and_ends_with_the_job(
    slurm_study: SmokeStudy, two_nodes: SlurmNode
) -> None:
    training = Training(slurm_study, "lambda-f-0", nodes=2, steps=2, save_every=1)
    training.node = two_nodes
    workflow = training.start()
    assert workflow.wait(3600) == 0, training.log.read_text()[-6000:]
    [job] = training.jobs()
    assert job.state == "COMPLETED"
    assert re.search(rf"JobId={job.number} .* NodeCnt=2 ", (two_nodes.folder / "jobs.txt").read_text())
    own = (slurm_study.results / "logs" / "train" / "lambda-f-0.seed0.log").read_text()
    assert "Ray has 2 nodes with 1, 1 GPUs" in own
    assert training.steps() == [1, 2] and training.done()["steps"] == 2
    wait_until(lambda: not processes(f"{training.folder}/"), 60, "Ray's processes on both nodes have ended")
