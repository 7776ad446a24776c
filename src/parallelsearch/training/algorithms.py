"""Which job trains an arm: the one place that looks at training.algorithm to choose it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from parallelsearch.config import ArmConfig
from parallelsearch.errors import ConfigError
from parallelsearch.records import Question
from parallelsearch.training.process.devices import require_devices
from parallelsearch.training.process.retriever_process import served_index, shared_url
from parallelsearch.training.process.simulator_process import served_policy
from parallelsearch.training.sampling_job import train_on_own_episodes
from parallelsearch.training.verl.job import run_job
from parallelsearch.training.verl.sft_job import train_on_answers


def train_arm(
    folder: Path,
    arm: ArmConfig,
    seed: int,
    policy: str,
    index: Path,
    questions: Sequence[Question],
    simulator: Path | None = None,
    *,
    on_step: Callable[[dict[str, Any]], None] = lambda row: None,
    on_chunk: Callable[[dict[str, Any]], None] = lambda counts: None,
) -> dict[str, Any]:
    """Trains `policy` by the arm's algorithm and leaves `folder`/policy; returns the last metrics.

    `on_step` sees the metrics of each step, `on_chunk` the counts so far of rejection sampling after each chunk.
    On GPUs a retriever server runs beside a job that searches; on the CPU it searches in the index itself, or asks the
    shared server where one answers (retriever_process). `simulator` is the folder of training.simulator.policy.
    ConfigError where the job has other nodes or GPUs than the arm asks for.
    """
    require_devices(arm.training)
    if arm.training.algorithm == "sft":
        return train_on_answers(folder, arm, seed, policy, questions, on_step)
    served: AbstractContextManager[str | None] = nullcontext(shared_url(index))
    if arm.training.device == "cuda":
        served = served_index(index, folder, arm.training.nodes)
    with served as url:
        if arm.training.algorithm == "rejection_sampling":
            return train_on_own_episodes(
                folder, arm, seed, policy, index, questions, retriever_url=url, on_chunk=on_chunk, on_step=on_step
            )
        with _served_simulator(arm, simulator, folder) as simulator_url:
            urls = {"retriever_url": url, "simulator_url": simulator_url}
            return run_job(folder, arm, seed, policy, index, questions, **urls, on_step=on_step)


def _served_simulator(arm: ArmConfig, folder: Path | None, out: Path) -> AbstractContextManager[str | None]:
    """The server of the model training.simulator.policy, where the arm names one."""
    training = arm.training
    if training.simulator is None or training.simulator.policy is None:
        return nullcontext()
    if folder is None:
        raise ConfigError(
            f"training.simulator.policy is '{training.simulator.policy}'; give its folder as --simulator."
        )
    return served_policy(folder, out, training.nodes, training.device)
