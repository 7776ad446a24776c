"""The devices of a training job, compared with its configuration before anything starts."""

from __future__ import annotations

import os

from parallelsearch.config import SUPERVISED, TrainingConfig
from parallelsearch.errors import ConfigError
from parallelsearch.machine import slurm

RAY_ADDRESS = "RAY_ADDRESS"


def node_count(training: TrainingConfig) -> int:
    """Nodes of a job; supervised training runs on one (torchrun --standalone)."""
    return 1 if training.algorithm in SUPERVISED else training.nodes


def require_devices(training: TrainingConfig) -> None:
    """ConfigError unless this job has the nodes, and this node the GPUs, that training.nodes and gpus_per_node say.

    veRL would wait for missing GPUs, and leave further ones idle.
    """
    _require_nodes(node_count(training))
    if training.device != "cuda":
        return
    import torch

    if (found := torch.cuda.device_count()) != training.gpus_per_node:
        shown = {name: os.environ.get(name, "not set") for name in ("CUDA_VISIBLE_DEVICES", "SLURM_GPUS_ON_NODE")}
        change = f"set training.gpus_per_node to {found}" if found else "set training.device to 'cpu'"
        raise ConfigError(
            f"training.gpus_per_node is {training.gpus_per_node}, but this node shows PyTorch {found} GPUs"
            f" ({', '.join(f'{name}: {value}' for name, value in shown.items())}); {change}, or ask for"
            f" {training.gpus_per_node} (set-resources, train, gres in profiles/slurm/config.yaml)."
        )


def _require_nodes(wanted: int) -> None:
    job, allocated = slurm.own_job(), slurm.own_nodes()
    if allocated is not None and allocated != wanted:
        raise ConfigError(
            f"training.nodes is {wanted}, but Slurm job {job} has {allocated} nodes; set"
            f" training.nodes to {allocated}, or ask for {wanted} (set-resources, train, nodes in"
            " profiles/slurm/config.yaml)."
        )
    if job is None and wanted > 1 and not os.environ.get(RAY_ADDRESS):
        raise ConfigError(
            f"training.nodes is {wanted}, but this is no Slurm job and {RAY_ADDRESS} is not set; set training.nodes to"
            " 1, submit the job (snakemake --profile slurm), or start Ray on all nodes and name its head."
        )
