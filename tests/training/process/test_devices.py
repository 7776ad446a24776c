"""A job whose nodes or GPUs are not those of the configuration is refused before anything starts."""

from __future__ import annotations

import pytest

from parallelsearch.config import TrainingConfig
from parallelsearch.errors import ConfigError
from parallelsearch.training.process.devices import node_count, require_devices


@pytest.fixture(autouse=True)
def _outside_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


def test_gpus_that_this_machine_lacks_are_named_with_both_numbers_and_the_next_step(monkeypatch) -> None:
    import torch

    found = torch.cuda.device_count()
    wanted = found + 8
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    change = f"set training.gpus_per_node to {found}" if found else "set training.device to 'cpu'"
    sentence = (
        rf"training.gpus_per_node is {wanted}, but this node shows PyTorch {found} GPUs \(CUDA_VISIBLE_DEVICES: 0, .*"
        rf"{change}, or ask for {wanted} \(set-resources, train, gres"
    )
    with pytest.raises(ConfigError, match=sentence):
        require_devices(TrainingConfig(device="cuda", gpus_per_node=wanted))


def test_ranks_on_cpus_are_no_devices(monkeypatch) -> None:
    import torch

    asked: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: asked.append(1) or 64)
    require_devices(TrainingConfig(device="cpu", gpus_per_node=8))
    assert asked == []
    with pytest.raises(ConfigError, match="shows PyTorch 64 GPUs"):
        require_devices(TrainingConfig(device="cuda", gpus_per_node=8))


@pytest.mark.parametrize("allocated", ["1", "3"])
def test_a_slurm_job_with_other_nodes_than_the_configuration_is_refused(monkeypatch, allocated: str) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "43")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", allocated)
    with pytest.raises(ConfigError, match=f"training.nodes is 2, but Slurm job 43 has {allocated} nodes"):
        require_devices(TrainingConfig(nodes=2))
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    require_devices(TrainingConfig(nodes=2))


def test_slurm_is_asked_where_a_step_does_not_know_the_nodes_of_its_job(monkeypatch, tmp_path) -> None:
    """Snakemake's executor starts a job's step with SLURM_JOB_ID, and without SLURM_JOB_NUM_NODES."""
    squeue = tmp_path / "squeue"
    squeue.write_text('#!/bin/sh\n[ "$*" = "--noheader --jobs=43 --format=%D" ] && echo 2\n')
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("SLURM_JOB_ID", "43")
    require_devices(TrainingConfig(nodes=2))
    with pytest.raises(ConfigError, match=r"training.nodes is 1, but Slurm job 43 has 2 nodes"):
        require_devices(TrainingConfig(nodes=1))


def test_several_nodes_need_slurm_or_a_ray_cluster_that_is_named(monkeypatch) -> None:
    with pytest.raises(ConfigError, match=r"this is no Slurm job and RAY_ADDRESS is not set; set training.nodes to 1"):
        require_devices(TrainingConfig(nodes=2))
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    require_devices(TrainingConfig(nodes=2))


def test_supervised_training_takes_one_node_whatever_the_study_says() -> None:
    assert node_count(TrainingConfig(nodes=4, algorithm="sft")) == 1
    assert node_count(TrainingConfig(nodes=4, algorithm="ppo")) == 4
