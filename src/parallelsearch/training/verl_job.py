"""One training job: data for veRL, its process, its metrics as they come, and the policy it leaves.

The run's folder keeps it all: config.yaml, verl.log, checkpoints/, records/ (one line an episode), metrics.jsonl and,
last, policy/ and done.json. A job that was killed goes on from its last checkpoint.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from parallelsearch.agent.prompts import user_message
from parallelsearch.config import ArmConfig, ServerConfig
from parallelsearch.errors import TrainingError
from parallelsearch.files import replacing, write_json, write_text
from parallelsearch.records import Question
from parallelsearch.training.child_process import end_child, start_child
from parallelsearch.training.training_metrics import TrainingMetrics
from parallelsearch.training.verl_config import AGENT_NAME, JobFiles, compose, overrides

POLL_SECONDS = 0.5
LOG_TAIL_LINES = 15


def run_job(
    folder: Path,
    arm: ArmConfig,
    seed: int,
    policy: str,
    index: Path,
    questions: Sequence[Question],
    *,
    retriever_url: str | None = None,
    simulator_url: str | None = None,
    on_step: Callable[[dict[str, Any]], None] = lambda row: None,
) -> dict[str, Any]:
    """Trains `policy` (a folder, or a published model's name) until arm.training.steps; returns the last metrics.

    `simulator_url` is where the model training.simulator.policy is served.

    Raises TrainingError, with the end of veRL's log, when the job fails, and ConfigError when veRL refuses a setting.
    """
    folder = folder.resolve()
    files = JobFiles(
        policy=str(Path(policy).resolve()) if Path(policy).exists() else policy,
        train_data=folder / "data" / "train.parquet",
        validation_data=folder / "data" / "validation.parquet",
        agent_loops=folder / "data" / "agent_loops.yaml",
        checkpoints=folder / "checkpoints",
    )
    arguments = overrides(arm, files, seed)
    write_data(files.train_data, arm, questions)
    write_data(files.validation_data, arm, questions[:1])
    _write_loop_settings(folder, files, arm, seed, index, retriever_url, simulator_url)
    metrics = TrainingMetrics(folder, finished_steps(files.checkpoints))
    if metrics.first_step <= arm.training.steps:
        with _verl_process(folder, arguments, arm, metrics.verl_log) as process:
            while process.poll() is None:
                time.sleep(POLL_SECONDS)
                metrics.collect(on_step)
            metrics.collect(on_step)
        if process.returncode != 0 or finished_steps(files.checkpoints) < arm.training.steps:
            compose(arguments)  # a setting that veRL refuses has an error of its own
            raise TrainingError(
                f"veRL ended with exit code {process.returncode} after {finished_steps(files.checkpoints)} saved of"
                f" {arm.training.steps} steps; the end of {folder / 'verl.log'}:\n{_tail(folder / 'verl.log')}"
            )
    export_policy(files.checkpoints / f"global_step_{arm.training.steps}" / "actor" / "huggingface", folder / "policy")
    return metrics.last


def write_data(path: Path, arm: ArmConfig, questions: Sequence[Question]) -> None:
    """A veRL data file: one row a question, the whole Question inside as JSON."""
    import pandas as pd

    rows = [
        {
            "data_source": question.dataset,
            "prompt": [{"role": "user", "content": user_message(arm.agent.prompt, question.text)}],
            "ability": "search",
            "reward_model": {"style": "rule", "ground_truth": list(question.golden_answers)},
            "extra_info": {"index": row, "question": json.dumps(dataclasses.asdict(question))},
            "agent_name": AGENT_NAME,
        }
        for row, question in enumerate(questions)
    ]
    with replacing(path) as partial:
        pd.DataFrame(rows).to_parquet(partial)


def finished_steps(checkpoints: Path) -> int:
    """The step of the last complete checkpoint; 0 when there is none."""
    marker = checkpoints / "latest_checkpointed_iteration.txt"
    return int(marker.read_text().strip() or 0) if marker.exists() else 0


def export_policy(source: Path, target: Path) -> None:
    """Copies a checkpoint's Hugging Face folder and makes sure that it loads, with weights in float32."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not list(source.glob("*.safetensors")):
        raise TrainingError(f"{source} holds no weights; delete the run's checkpoints and train again.")
    with replacing(target) as partial:
        model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
        if not all(torch.isfinite(tensor).all() for tensor in model.parameters()):
            raise TrainingError(f"{source} has weights that are not finite numbers; the training diverged.")
        model.save_pretrained(partial)
        AutoTokenizer.from_pretrained(source).save_pretrained(partial)


def _write_loop_settings(
    folder: Path,
    files: JobFiles,
    arm: ArmConfig,
    seed: int,
    index: Path,
    retriever_url: str | None,
    simulator_url: str | None,
) -> None:
    simulator = arm.training.simulator
    if simulator and simulator_url:
        server = ServerConfig(url=simulator_url, model=str(simulator.policy), timeout=600)
        simulator = simulator.model_copy(update={"policy": None, "server": server})
    settings = folder / "data" / "loop.json"
    write_json(
        settings,
        {
            "agent": arm.agent.model_dump(),
            "reward": arm.reward.model_dump(),
            "seed": seed,
            "index": str(index.resolve()),
            "retriever_url": retriever_url,
            "records": str(folder / "records"),
            "steps": arm.training.steps,
            "simulator": simulator.model_dump() if simulator else None,
        },
    )
    loop = {
        "name": AGENT_NAME,
        "_target_": "parallelsearch.training.agent_loop.EpisodeLoop",
        "settings": str(settings),
    }
    write_text(files.agent_loops, yaml.safe_dump([loop], sort_keys=False))


@contextmanager
def _verl_process(
    folder: Path, arguments: list[str], arm: ArmConfig, metrics_file: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """veRL's process in a session of its own; it ends with the block, whatever ends the block."""
    (folder / "records").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *arguments, f"hydra.run.dir={folder / 'data' / 'hydra'}"]
    process = start_child(command, folder / "verl.log", job_environment(arm, metrics_file))
    previous = {number: signal.signal(number, _raise_exit) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield process
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        end_child(process)


def job_environment(arm: ArmConfig, metrics_file: Path) -> dict[str, str]:
    """This process's environment with what veRL, Ray and the rest of a job's processes need."""
    environment = {
        **os.environ,
        "VERL_FILE_LOGGER_PATH": str(metrics_file),
        "HF_DATASETS_OFFLINE": "1",
        "WANDB_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
    }
    if arm.training.device == "cpu":
        environment |= {
            "VERL_USE_EXTERNAL_MODULES": "parallelsearch.training.verl_cpu.plugin",
            "VERL_ENGINE_DEVICE": "cuda",  # the FSDP engine is registered under this name; it runs on CPUs
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "RAY_worker_niceness": "0",  # Ray's 15 would let anything else on a small machine starve the job
            "HF_HUB_OFFLINE": "1",
            # Generation and query encoding run at once in two processes: waiting threads must not keep a core busy.
            "OMP_WAIT_POLICY": "PASSIVE",
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(os.cpu_count() or 1)),
        }
        environment.pop("CUDA_VISIBLE_DEVICES", None)  # an empty value makes Ray refuse logical GPUs
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or each of the job's ten processes compiles all of veRL anew
    environment.pop("RAY_ADDRESS", None) if arm.training.nodes == 1 else None
    return environment


def _raise_exit(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)


def _tail(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-LOG_TAIL_LINES:])


def clear_checkpoints(folder: Path) -> None:
    """Removes what only an unfinished run needs."""
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
