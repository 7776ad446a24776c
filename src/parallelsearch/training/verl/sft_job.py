"""One supervised training job: token rows for veRL, its SFT trainer under torchrun, its metrics, the policy it leaves.

The run's folder is that of job.py, without records/: a step has no episodes. A job that was killed goes on from
its last checkpoint.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from parallelsearch.config import ArmConfig
from parallelsearch.errors import TrainingError
from parallelsearch.machine.full_disk import naming_full_disk
from parallelsearch.records import Question
from parallelsearch.runs.checkpoints import Checkpoints
from parallelsearch.training.process.child_process import running_child
from parallelsearch.training.process.guard import Guard
from parallelsearch.training.process.job_failure import LOG, job_failure, log_size
from parallelsearch.training.process.leftovers import end_leftovers
from parallelsearch.training.process.stop_request import STOP_FILE, StopRequest, stopped_early
from parallelsearch.training.verl.failed_run import end_run, export_last
from parallelsearch.training.verl.job import (
    hydra_folder,
    job_environment,
    watch,
)
from parallelsearch.training.verl.sft_config import compose_sft, sft_overrides
from parallelsearch.training.verl.token_rows import TokenRow, answer_rows, read_token_rows, write_token_rows
from parallelsearch.training.verl.training_metrics import TrainingMetrics

# veRL's name of a figure -> ours. veRL logs the rate that the schedule gives to the next step.
FIGURES = {
    "train/loss": "loss",
    "train/grad_norm": "gradient_norm",
    "train/lr": "learning_rate",
    "train/global_tokens": "tokens",
    "timing_s/step": "seconds",
    "perf/max_memory_allocated_gb": "perf/max_memory_allocated_gb",
}


class SupervisedMetrics(TrainingMetrics):
    """metrics.jsonl of a supervised run; `facts` about its demonstrations stand in every row."""

    def __init__(self, folder: Path, finished_steps: int, facts: Mapping[str, float]) -> None:
        self._facts = dict(facts)
        super().__init__(folder, finished_steps)

    def figures(self, step: int, data: dict[str, Any]) -> dict[str, float]:
        """Loss (mean over the learned tokens), rate, tokens of the batch (prompts included) and seconds."""
        return {**{name: float(data[key]) for key, name in FIGURES.items() if key in data}, **self._facts}


def train_on_answers(
    folder: Path,
    arm: ArmConfig,
    seed: int,
    policy: str,
    questions: Sequence[Question],
    on_step: Callable[[dict[str, Any]], None] = lambda row: None,
) -> dict[str, Any]:
    """Supervised training on question and answer, without reasoning or retrieval; returns the last metrics."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(policy, trust_remote_code=False)
    rows = answer_rows(in_drawn_order(questions, seed), tokenizer, arm.agent)
    return train_on_rows(folder, arm, policy, rows, {}, on_step)


def train_on_rows(
    folder: Path,
    arm: ArmConfig,
    policy: str,
    rows: Iterable[TokenRow],
    facts: Mapping[str, float],
    on_step: Callable[[dict[str, Any]], None] = lambda row: None,
) -> dict[str, Any]:
    """Trains `policy` (a folder) on `rows` until arm.training.steps; returns the last metrics, `facts` among them.

    Raises TrainingError without a row or, with the end of veRL's log, when the job fails, and ConfigError when veRL
    refuses a setting.
    """
    folder, policy, steps = folder.resolve(), str(Path(policy).resolve()), arm.training.steps
    data = folder / "data" / "train.parquet"
    checkpoints = Checkpoints(folder / "checkpoints", ranks=arm.training.gpus_per_node, supervised=True)
    arguments = sft_overrides(arm, policy, data, checkpoints.folder)
    written = _write_batches(data, rows, arm.training.batch_size)
    end_leftovers(folder)
    metrics = SupervisedMetrics(folder, checkpoints.clean(), {"demonstrations": written, **facts})
    if metrics.first_step <= steps:
        checkpoints.require_room(Path(policy))
        log_from = log_size(folder)
        program = ("-m", "parallelsearch.training.verl.sft", *arguments, *hydra_folder(folder))
        command = torchrun(arm.training.gpus_per_node, *program)
        with (
            naming_full_disk(folder / "checkpoints", checkpoints.clean),
            running_child(command, folder / LOG, job_environment(arm, metrics.verl_log), shielded=True) as process,
            StopRequest(folder / "data" / STOP_FILE, checkpoints.bytes_of_one(Path(policy))) as stop,
        ):
            verdict = watch(process, metrics, Guard(arm.training, metrics.earlier), checkpoints, on_step, stop)
        if verdict:
            raise end_run(folder, checkpoints, verdict)
        if stop.requested and checkpoints.latest < steps:
            raise stopped_early(folder, checkpoints.latest, steps, str(stop.reason))
        if process.returncode != 0 or checkpoints.latest < steps:
            failure = job_failure(folder, process.returncode, checkpoints, steps, Path(policy), log_from)
            if isinstance(failure, TrainingError):
                compose_sft(arguments)  # a setting that veRL refuses has an error of its own
            raise failure
    export_last(checkpoints, steps, folder / "policy")
    return metrics.last


def _write_batches(path: Path, rows: Iterable[TokenRow], batch_size: int) -> int:
    """Writes `rows` and returns their number; fewer than a batch are repeated, since veRL takes whole batches only."""
    written = write_token_rows(path, rows)
    if not written:
        raise TrainingError(
            "There is nothing to learn from: no question has an answer and a prompt within the limits of agent; raise"
            " agent.max_prompt_tokens or agent.max_generation_tokens."
        )
    if written < batch_size:
        few = [TokenRow(**row) for row in read_token_rows([path]).to_pylist()]
        write_token_rows(path, islice(cycle(few), batch_size))
    return written


def in_drawn_order(questions: Sequence[Question], seed: int) -> list[Question]:
    """`questions` in an order drawn from `seed`: veRL's SFT trainer shuffles every run alike."""
    return random.Random(f"{seed}/demonstrations").sample(list(questions), len(questions))


def torchrun(ranks: int, *program: str) -> list[str]:
    """The command that runs `program` (a script, or -m MODULE) and its arguments in `ranks` processes of this node."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    return [*launcher, f"--nproc-per-node={ranks}", *program]
