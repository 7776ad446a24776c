"""One training job: data for veRL, its process, its metrics as they come, and the policy it leaves.

The run's folder keeps it all: config.yaml, verl.log, checkpoints/, records/ (one line an episode), metrics.jsonl and,
last, policy/ and done.json; or failed.json and policy-last-good/, where the guard ended the job. A job that was killed
goes on from its last complete checkpoint.
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from parallelsearch.agent.prompts import messages
from parallelsearch.config import ArmConfig, ServerConfig
from parallelsearch.corpus.gold_paragraphs import gold_paragraphs
from parallelsearch.errors import DataError, TrainingError
from parallelsearch.files import MANIFEST, read_json, replacing, write_json, write_text
from parallelsearch.machine.full_disk import naming_full_disk
from parallelsearch.records import Question
from parallelsearch.retrieval.indexes.parts import open_corpus
from parallelsearch.rewards.semantics.stepsearch import passage_text
from parallelsearch.runs.checkpoints import Checkpoints
from parallelsearch.secret import POLICY_TOKEN_VARIABLE
from parallelsearch.training.process.child_process import running_child
from parallelsearch.training.process.guard import Guard, Verdict
from parallelsearch.training.process.job_failure import LOG, job_failure, log_size
from parallelsearch.training.process.leftovers import end_leftovers
from parallelsearch.training.process.stop_request import STOP_FILE, StopRequest, stopped_early
from parallelsearch.training.verl.config import ADVANTAGES, AGENT_NAME, JobFiles, compose, overrides
from parallelsearch.training.verl.failed_run import LAST_GOOD, end_run, export_last
from parallelsearch.training.verl.ray_cluster import ray_cluster
from parallelsearch.training.verl.training_metrics import TrainingMetrics

POLL_SECONDS = 0.5
CPU_PLUGIN = "parallelsearch.training.verl.cpu.plugin"
SEEDS = "parallelsearch.training.verl.seeds"
EXTERNAL_MODULES = "VERL_USE_EXTERNAL_MODULES"  # what veRL imports in each process; the user's own are kept


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

    Raises TrainingError when the job fails (with the end of veRL's log) or the guard ends it (see failed_run),
    ConfigError when veRL refuses a setting, ResourceError when the disk is too small for the checkpoints to come.
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
    gold = gold_of(arm, index, questions)
    write_data(files.train_data, arm, questions, gold)
    write_data(files.validation_data, arm, questions[:1], gold[:1])
    _write_loop_settings(folder, files, arm, seed, index, retriever_url, simulator_url)
    training = arm.training
    checkpoints = Checkpoints(
        files.checkpoints, ranks=training.nodes * training.gpus_per_node, critic=training.algorithm == "ppo"
    )
    end_leftovers(folder)
    metrics = TrainingMetrics(folder, checkpoints.clean())
    if metrics.first_step <= training.steps:
        checkpoints.require_room(Path(files.policy))
        (folder / "records").mkdir(exist_ok=True)
        log_from = log_size(folder)
        command = [sys.executable, "-m", "verl.trainer.main_ppo", *arguments, *hydra_folder(folder)]
        with (
            naming_full_disk(folder / "checkpoints", checkpoints.clean),
            ray_cluster(training, folder, job_environment(arm, metrics.verl_log, seed)) as environment,
            running_child(command, folder / LOG, environment, shielded=True) as process,
            StopRequest(folder / "data" / STOP_FILE, checkpoints.bytes_of_one(Path(files.policy))) as stop,
        ):
            verdict = watch(process, metrics, Guard(training, metrics.earlier), checkpoints, on_step, stop)
        if verdict:
            raise end_run(folder, checkpoints, verdict)
        if stop.requested and checkpoints.latest < training.steps:
            raise stopped_early(folder, checkpoints.latest, training.steps, str(stop.reason))
        if process.returncode != 0 or checkpoints.latest < training.steps:
            start = Path(files.policy)
            failure = job_failure(folder, process.returncode, checkpoints, training.steps, start, log_from)
            if isinstance(failure, TrainingError):
                compose(arguments)  # a setting that veRL refuses has an error of its own
            raise failure
    export_last(checkpoints, training.steps, folder / "policy")
    return metrics.last


def watch(
    process: subprocess.Popen[bytes],
    metrics: TrainingMetrics,
    guard: Guard,
    checkpoints: Checkpoints,
    on_step: Callable[[dict[str, Any]], None],
    stop: StopRequest,
) -> Verdict | None:
    """Follows the job until it has ended, or has to: then the guard's verdict. When asked to `stop` it ends itself."""
    running, announced = True, False
    while running:
        running = process.poll() is None
        for row in metrics.collect():
            on_step(row)
            stop.step_took(row["seconds"])
            if verdict := guard.see(row):
                return verdict
        checkpoints.prune(guard.good_before)
        if stop.requested and not announced:
            print(f"{metrics.folder} is saved after this step and ends, because {stop.reason}", flush=True)
            announced = True
        if running:
            time.sleep(POLL_SECONDS)
    # A step of nothing but failures may end veRL before it has logged anything.
    unlogged = metrics.unlogged() if process.returncode else None
    return guard.lost_episodes(unlogged, finished=False) if unlogged else None


def gold_of(arm: ArmConfig, index: Path, questions: Sequence[Question]) -> list[tuple[str, ...]]:
    """For each question the texts of its gold paragraphs, where the arm's reward reads them; elsewhere nothing.

    DataError when not one question has any: then the reward of a search could teach nothing.
    """
    if arm.reward.semantics != "stepsearch":
        return [()] * len(questions)
    corpus = open_corpus(index, read_json(index / MANIFEST), "build the index again")
    found = gold_paragraphs(questions, corpus, passage_text)
    if not any(found):
        raise DataError(
            f"{corpus.folder} holds no supporting page of any of the {len(questions)} questions, which the reward of"
            f" {arm.name} compares searches with; train on sets with supporting pages, and search their corpus."
        )
    return found


def write_data(path: Path, arm: ArmConfig, questions: Sequence[Question], gold: Sequence[tuple[str, ...]] = ()) -> None:
    """A veRL data file: one row a question, the whole Question and its gold paragraphs' texts inside as JSON."""
    import pandas as pd

    rows = [
        {
            "data_source": question.dataset,
            "prompt": messages(arm.agent.prompt, question.text),
            "ability": "search",
            "reward_model": {"style": "rule", "ground_truth": list(question.golden_answers)},
            "extra_info": {
                "index": row,
                "question": json.dumps(dataclasses.asdict(question)),
                "gold_paragraphs": json.dumps(gold[row] if gold else ()),
            },
            "agent_name": AGENT_NAME,
        }
        for row, question in enumerate(questions)
    ]
    with replacing(path) as partial:
        pd.DataFrame(rows).to_parquet(partial)


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
        server = ServerConfig(
            url=simulator_url, model=str(simulator.policy), timeout=600, key_variable=POLICY_TOKEN_VARIABLE
        )
        simulator = simulator.model_copy(update={"policy": None, "server": server})
    settings = folder / "data" / "loop.json"
    write_json(
        settings,
        {
            "agent": arm.agent.model_dump(),
            "reward": arm.reward.model_dump(),
            "mask_observations": arm.training.mask_observations,
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


def hydra_folder(folder: Path) -> list[str]:
    """The override that keeps Hydra's own files inside the run's folder."""
    return [f"hydra.run.dir={folder / 'data' / 'hydra'}"]


def job_environment(arm: ArmConfig, metrics_file: Path, seed: int = 0) -> dict[str, str]:
    """This process's environment with what veRL, Ray and the rest of a job's processes need."""
    environment = {
        **os.environ,
        "VERL_FILE_LOGGER_PATH": str(metrics_file),
        "PARALLELSEARCH_SEED": str(seed),
        "HF_DATASETS_OFFLINE": "1",
        "WANDB_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
    }
    modules = [ADVANTAGES, SEEDS, os.environ.get(EXTERNAL_MODULES)]
    if arm.training.device == "cpu":
        modules.insert(0, CPU_PLUGIN)
        environment |= {
            "VERL_ENGINE_DEVICE": "cuda",  # the FSDP engine is registered under this name; it runs on CPUs
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "RAY_worker_niceness": "0",  # Ray's 15 would let anything else on a small machine starve the job
            "HF_HUB_OFFLINE": "1",
            # Generation and query encoding run at once in two processes: waiting threads must not keep a core busy.
            "OMP_WAIT_POLICY": "PASSIVE",
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(os.cpu_count() or 1)),
        }
        environment.pop("CUDA_VISIBLE_DEVICES", None)  # an empty value makes Ray refuse logical GPUs
    environment[EXTERNAL_MODULES] = ",".join(filter(None, modules))
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or each of the job's ten processes compiles all of veRL anew
    environment.pop("RAY_ADDRESS", None) if arm.training.nodes == 1 else None
    if not environment.get("RAY_ADDRESS"):  # this job's own Ray: nobody else on the node may give it work
        environment.setdefault("RAY_AUTH_MODE", "token")
        environment.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    return environment


def clear_checkpoints(folder: Path) -> None:
    """Removes what only an unfinished run needs."""
    for name in ("checkpoints", LAST_GOOD):
        shutil.rmtree(folder / name, ignore_errors=True)
