"""Makes veRL 0.9.1 run on a CPU. Imported by veRL itself, in every process (VERL_USE_EXTERNAL_MODULES).

Registered through veRL's extension points: the CPU platform and the rollout engine `hf`. Replaced, because veRL has no
setting for it (file and line of veRL 0.9.1):

- the process group's default backend `cpu:gloo,<device>:<backend>` names the CPU twice, under Ray
  (utils/distributed.py:89) and under torchrun, for supervised training (utils/distributed.py:63);
- CPU offloading of forward-only engines pins memory (workers/engine/fsdp/transformer_impl.py:462), which needs a GPU;
- the critic is loaded with flash attention 2 (utils/model.py:649), which needs a GPU.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch
import verl.utils.distributed as distributed
import verl.utils.fsdp_utils as fsdp_utils
import verl.utils.model as model_utils
from verl.plugin.platform import set_platform
from verl.workers.rollout import base, replica

from parallelsearch.training.verl.cpu.platform import CpuPlatform

set_platform(CpuPlatform())

_initialize_process_group = distributed.initialize_global_process_group_ray
_OffloadPolicy = fsdp_utils.CPUOffloadPolicy


def _initialize_gloo(timeout_second: int | None = None, backend: str | None = None) -> Any:
    return _initialize_process_group(timeout_second=timeout_second, backend=backend or "cpu:gloo")


def _initialize_gloo_under_torchrun(timeout_second: int = 36000) -> tuple[int, int, int]:
    torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=timeout_second))
    return int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class _UnpinnedOffloadPolicy(_OffloadPolicy):
    def __init__(self, pin_memory: bool = False) -> None:
        super().__init__(pin_memory=False)


def _load_value_model(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
    from transformers import AutoModelForTokenClassification

    return AutoModelForTokenClassification.from_pretrained(
        local_path,
        dtype=torch_dtype,
        config=model_config,
        attn_implementation=getattr(model_config, "_attn_implementation", None) or "sdpa",
        use_safetensors=True,
        trust_remote_code=False,
    )


def _load_replica_class() -> type:
    from parallelsearch.training.verl.cpu.rollout_server import HFReplica

    return HFReplica


distributed.initialize_global_process_group_ray = _initialize_gloo
distributed.initialize_global_process_group = _initialize_gloo_under_torchrun
fsdp_utils.CPUOffloadPolicy = _UnpinnedOffloadPolicy  # type: ignore[misc]
model_utils.load_valuehead_model = _load_value_model
base._ROLLOUT_REGISTRY[("hf", "async")] = "parallelsearch.training.verl.cpu.rollout_server.HFWeightSender"
replica.RolloutReplicaRegistry.register("hf", _load_replica_class)
