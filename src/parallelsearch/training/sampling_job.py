"""Sampling for rejection sampling in processes of its own: one on the CPU, one a GPU; then supervised training.

The processes share the chunks between them and are gone, with their memory, when training begins. A job that was
killed goes on with the chunks that are missing.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from parallelsearch.config import ArmConfig, Section
from parallelsearch.errors import StoppedEarly, TrainingError
from parallelsearch.files import read_json, sha256, write_text
from parallelsearch.records import Question
from parallelsearch.training.process.child_process import log_tail, running_child
from parallelsearch.training.process.stop_request import StopRequest
from parallelsearch.training.rejection_sampling import (
    chunk_count,
    chunk_folder,
    kept_rows,
    sample_chunk,
    total_counts,
)
from parallelsearch.training.verl.job import POLL_SECONDS
from parallelsearch.training.verl.sft_job import in_drawn_order, train_on_rows


class SamplingSettings(Section):
    """What a sampling process reads; all paths absolute."""

    folder: str
    arm: ArmConfig
    seed: int
    policy: str
    index: str
    retriever_url: str | None
    questions: str


def train_on_own_episodes(
    folder: Path,
    arm: ArmConfig,
    seed: int,
    policy: str,
    index: Path,
    questions: Sequence[Question],
    *,
    retriever_url: str | None = None,
    on_chunk: Callable[[dict[str, Any]], None] = lambda counts: None,
    on_step: Callable[[dict[str, Any]], None] = lambda row: None,
) -> dict[str, Any]:
    """Samples, keeps and trains; returns the last metrics, with the counts of sampling among them.

    Sampled are as many prompts as the arms of reinforcement learning see, training.steps times training.batch_size, or
    all where there are fewer.
    """
    folder = folder.resolve()
    asked = in_drawn_order(questions, seed)[: arm.training.steps * arm.training.batch_size]
    settings = _write_settings(folder, arm, seed, policy, index, asked, retriever_url)
    chunks = range(chunk_count(arm, len(asked)))
    if not all(chunk_folder(folder, chunk).is_dir() for chunk in chunks):
        _sample(folder, settings, arm, chunks, on_chunk)
    facts = total_counts(folder, chunks)
    if not facts["sampled/kept"]:
        raise TrainingError(
            f"None of {facts['sampled/episodes']:.0f} sampled episodes was right and well-formed; start from a policy"
            " that answers some questions in the agent's loop."
        )
    return train_on_rows(folder, arm, policy, kept_rows(folder, chunks), facts, on_step)


async def sample_share(settings: SamplingSettings, worker: int, workers: int) -> None:
    """The chunks whose number is `worker` modulo `workers`, those that exist left out."""
    from parallelsearch.engines.local_engines import open_local_engine
    from parallelsearch.questions.store import read_questions

    folder, arm = Path(settings.folder), settings.arm
    questions = read_questions(Path(settings.questions))
    chunks = range(worker, chunk_count(arm, len(questions)), workers)
    retriever = _open_retriever(settings)
    training = arm.training
    engine = open_local_engine(training.rollout_engine, Path(settings.policy), training.device, training.batch_size)
    provenance = _provenance(settings)
    for chunk in chunks:
        if not chunk_folder(folder, chunk).is_dir():
            await sample_chunk(folder, arm, settings.seed, chunk, questions, engine, retriever, provenance)
    engine.close()


def _write_settings(
    folder: Path,
    arm: ArmConfig,
    seed: int,
    policy: str,
    index: Path,
    questions: Sequence[Question],
    retriever_url: str | None,
) -> Path:
    from parallelsearch.questions.store import write_questions

    asked, path = folder / "data" / "sampled_questions.parquet", folder / "data" / "sampling.json"
    write_questions(asked, questions)
    settings = SamplingSettings(
        folder=str(folder),
        arm=arm,
        seed=seed,
        policy=str(Path(policy).resolve()),
        index=str(index.resolve()),
        retriever_url=retriever_url,
        questions=str(asked),
    )
    write_text(path, settings.model_dump_json())
    return path


def _sample(
    folder: Path, settings: Path, arm: ArmConfig, chunks: range, on_chunk: Callable[[dict[str, Any]], None]
) -> None:
    """Runs the sampling processes until every chunk exists; TrainingError with the log of one that fails.

    StoppedEarly when the job is asked to end; finished chunks stay.
    """
    workers = min(arm.training.gpus_per_node, len(chunks)) if arm.training.device == "cuda" else 1
    log, told = folder / "sampling.log", {chunk for chunk in chunks if chunk_folder(folder, chunk).is_dir()}
    with ExitStack() as stack:
        processes = []
        for worker in range(workers):
            command = [sys.executable, "-m", __name__, str(settings), str(worker), str(workers)]
            processes.append(stack.enter_context(running_child(command, log, _environment(arm, worker))))
        stop = stack.enter_context(StopRequest())  # after the children, each of which takes SIGTERM for its own
        while True:
            ended = [process.poll() for process in processes]
            for chunk in chunks:
                if chunk not in told and chunk_folder(folder, chunk).is_dir():
                    told.add(chunk)
                    on_chunk(total_counts(folder, sorted(told)))
            if stop.requested or any(ended) or all(code == 0 for code in ended):
                break
            time.sleep(POLL_SECONDS)
    if stop.requested and len(told) < len(chunks):
        kept = f"{len(told)} of {len(chunks)} chunks are sampled"
        raise StoppedEarly(
            f"{folder}: the job ended because {stop.reason}; {kept}; the same command goes on from there."
        )
    if len(told) < len(chunks):
        raise TrainingError(
            f"Sampling ended after {len(told)} of {len(chunks)} chunks; the end of {log}:\n{log_tail(log)}"
        )


def _environment(arm: ArmConfig, worker: int) -> dict[str, str]:
    """This process's environment; on GPUs with one GPU, the `worker`-th of those that this process may use."""
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "OMP_WAIT_POLICY": "PASSIVE"}
    if arm.training.device == "cuda":
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(arm.training.gpus_per_node)))
        environment["CUDA_VISIBLE_DEVICES"] = visible.split(",")[worker]
    return environment


def _open_retriever(settings: SamplingSettings) -> Any:
    if settings.retriever_url:
        from parallelsearch.retrieval.serving.client import HttpRetriever

        return HttpRetriever(settings.retriever_url)
    from parallelsearch.retrieval import opening

    return opening.open_retriever(Path(settings.index))


def _provenance(settings: SamplingSettings) -> Any:
    from parallelsearch.evaluation.episodes import Provenance

    manifest, training = read_json(Path(settings.index) / "manifest.json"), settings.arm.training
    return Provenance(
        policy_sha256=sha256(min(Path(settings.policy).glob("*.safetensors"))),
        index_sha256=manifest["sha256"],
        corpus_sha256=manifest["corpus"]["sha256"],
        questions_sha256=sha256(Path(settings.questions)),
        top_k=settings.arm.agent.top_k,
        decoding={"temperature": training.temperature, "top_p": training.top_p, "engine": training.rollout_engine},
        config=settings.arm.model_dump(),
        corpus=Path(manifest["corpus"]["path"]).name,
        index=manifest["kind"],
    )


if __name__ == "__main__":
    asyncio.run(
        sample_share(
            SamplingSettings.model_validate_json(Path(sys.argv[1]).read_text(encoding="utf-8")),
            int(sys.argv[2]),
            int(sys.argv[3]),
        )
    )
