"""A veRL rollout server over the house's own Hugging Face engine: token ids in, token ids and log-probabilities out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import Any

import ray
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

from parallelsearch.engines.engine import Sampling

ACTOR_NAME = "parallelsearch_hf_server_{rank}_0"
# Below so many parameters a decoding step has nothing to share: 22 rows of a policy of 850,000 took 4.4 ms with one
# thread and 6 to 10 with two.
_ONE_THREAD = 10_000_000


class HFServer:
    """A Ray actor around one HFEngine."""

    def __init__(self, config: Any, model_config: Any, replica_rank: int) -> None:
        from pathlib import Path

        from parallelsearch.engines.hf import HFEngine

        path = model_config["path"] if isinstance(model_config, dict) else model_config.path
        self.engine = HFEngine.open(Path(path).expanduser(), max_rows=int(config.max_num_seqs))
        self.model = self.engine.model.float()
        if self.model.num_parameters() < _ONE_THREAD:
            torch.set_num_threads(1)  # before the engine's thread, which takes this over, has computed anything
        self.global_steps: int | None = None

    async def ready(self) -> bool:
        return True

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, **_: Any
    ) -> TokenOutput:
        """One generation; `sampling_params` in vLLM's terms."""
        generation = await self.engine.generate(
            [int(token) for token in prompt_ids],
            max_tokens=int(sampling_params["max_tokens"]),
            stop=sampling_params.get("stop") or (),
            sampling=Sampling(
                temperature=float(sampling_params.get("temperature", 1.0)),
                top_p=float(sampling_params.get("top_p", 1.0)),
                seed=sampling_params.get("seed"),
            ),
        )
        return TokenOutput(
            token_ids=generation.token_ids,
            log_probs=generation.log_probs if sampling_params.get("logprobs") else None,
            stop_reason="completed",
            extra_fields={"global_steps": self.global_steps, "finish_reason": generation.finish_reason},
        )

    async def update_weights(self, state: dict[str, torch.Tensor], global_steps: int | None) -> None:
        """Takes over the actor's weights between two tokens; every parameter has to be there."""
        await asyncio.to_thread(self._load, state)
        if global_steps is not None:
            self.global_steps = global_steps

    def _load(self, state: dict[str, torch.Tensor]) -> None:
        with self.engine.exclusive(), torch.no_grad():
            missing, unexpected = self.model.load_state_dict(state, strict=False)
            tied = {"lm_head.weight"} if self.model.config.tie_word_embeddings else set()
            if unexpected or set(missing) - tied:
                raise RuntimeError(f"weights do not fit the model: missing {missing}, unexpected {unexpected}")
            self.model.tie_weights()

    async def set_global_steps(self, steps: int) -> None:
        self.global_steps = steps

    async def _nothing(self, *_: Any, **__: Any) -> None:
        return None

    # Memory saving, profiling and draining have no meaning on a CPU server that stays loaded.
    wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = _nothing
    abort_all_requests = resume_generation = start_profile = stop_profile = wait_for_requests_to_drain = _nothing


class HFReplica(RolloutReplica):
    """Starts one HFServer on the node of its worker."""

    async def launch_servers(self) -> None:
        node = await self.workers[0].__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id())
        server = (
            ray.remote(HFServer)
            .options(
                num_cpus=0,
                name=ACTOR_NAME.format(rank=self.replica_rank),
                max_concurrency=self.max_concurrency,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False),
            )
            .remote(config=self.config, model_config=self.model_config, replica_rank=self.replica_rank)
        )
        await server.ready.remote()
        self.servers = [server]
        self._server_handle, self._server_address = server, f"hf-replica-{self.replica_rank}"


class HFWeightSender(BaseRollout):
    """The rollout side of an actor worker: sends the updated weights to the server through Ray's object store."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1, **_: Any) -> None:
        super().__init__(config, model_config, device_mesh)
        rank = int(os.environ["RANK"])
        ranks_per_replica = (
            config.tensor_model_parallel_size * config.data_parallel_size * config.pipeline_model_parallel_size
        )
        self.replica_rank = rank // ranks_per_replica if replica_rank == -1 else replica_rank
        self.sends = rank % ranks_per_replica == 0
        self.server: Any = None

    async def resume(self, tags: list[str]) -> None:
        """Nothing was released."""

    async def release(self) -> None:
        """Nothing is released."""

    @torch.no_grad()
    async def update_weights(  # type: ignore[override]
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None, **_: Any
    ) -> None:
        """Every rank has to go through `weights`, since gathering them is a collective operation."""
        state = {name: tensor.detach().to("cpu", torch.float32).clone() for name, tensor in weights}
        if not self.sends:
            return
        if self.server is None:
            self.server = ray.get_actor(ACTOR_NAME.format(rank=self.replica_rank))
        await self.server.update_weights.remote(state, global_steps)
