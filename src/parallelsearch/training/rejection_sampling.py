"""Rejection sampling: several episodes of each prompt from the initial policy, of which the right ones are kept.

Kept is an episode whose answer is an exact match and that is well-formed; the policy then learns from its rollout.
The prompts are sampled in chunks. A chunk is a folder that appears when it is complete:

    episodes.parquet   every sampled episode, as evaluation writes it
    rollouts.parquet   a row each, in the same order: token ids, the mask of the model's own tokens, and `kept`
    counts.json        prompts, episodes, failures, right and kept ones, seconds
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from parallelsearch.agent.episode import Rollout, run_episode
from parallelsearch.answers import exact_match
from parallelsearch.config import ArmConfig
from parallelsearch.engines.engine import Engine, Sampling
from parallelsearch.errors import TrainingError
from parallelsearch.evaluation.episodes import Provenance, write_episodes
from parallelsearch.files import read_json, replacing, write_json
from parallelsearch.records import Episode, Question
from parallelsearch.retrieval.retriever import Retriever
from parallelsearch.training.verl.token_rows import SCHEMA, TokenRow, rollout_row

COUNTS = ("prompts", "episodes", "failures", "right", "kept", "kept_prompts")
_ROLLOUTS = SCHEMA.append(pa.field("kept", pa.bool_()))


def chunk_folder(folder: Path, chunk: int) -> Path:
    """Where chunk number `chunk` of the run in `folder` lies."""
    return folder / "sampled" / f"chunk-{chunk:05d}"


def chunk_count(arm: ArmConfig, prompts: int) -> int:
    """Chunks of a run over `prompts` prompts; each has the prompts of one step, training.batch_size."""
    return -(-prompts // arm.training.batch_size)


async def sample_chunk(
    folder: Path,
    arm: ArmConfig,
    seed: int,
    chunk: int,
    questions: Sequence[Question],
    engine: Engine,
    retriever: Retriever,
    provenance: Provenance,
) -> None:
    """Samples chunk number `chunk` of `questions` (all of the run's) and writes its folder.

    Episode n of the prompt at row r draws with seed `seed` * 1,000,003 + r * samples + n. Failures of engine and
    retriever are counted and never kept; where every episode of a chunk failed, TrainingError and no folder.
    """
    training, started = arm.training, time.monotonic()
    first = chunk * training.batch_size
    prompts = questions[first : first + training.batch_size]
    samples = training.rejection_samples
    free = asyncio.Semaphore(training.batch_size)

    async def sample(number: int, question: Question) -> Rollout:
        sampling = Sampling(training.temperature, training.top_p, seed=seed * 1_000_003 + number)
        async with free:
            return await run_episode(question, engine, retriever, arm.agent, sampling)

    numbered = enumerate((question for question in prompts for _ in range(samples)), first * samples)
    rollouts = list(await asyncio.gather(*(sample(*item) for item in numbered)))
    failed = [rollout.episode for rollout in rollouts if rollout.episode.stop_reason.is_infrastructure_failure]
    if len(failed) == len(rollouts):
        raise TrainingError(f"Every one of {len(rollouts)} episodes failed; the first with: {failed[0].error}")
    groups = [rollouts[start : start + samples] for start in range(0, len(rollouts), samples)]
    kept = [flag for group in groups for flag in kept_of(group, training.rejection_keep)]
    right = [is_right(rollout.episode) for rollout in rollouts]
    kept_prompts = sum(any(kept[start : start + samples]) for start in range(0, len(kept), samples))
    values = (len(prompts), len(rollouts), len(failed), sum(right), sum(kept), kept_prompts)
    with replacing(chunk_folder(folder, chunk)) as partial:
        partial.mkdir()
        episodes = ((rollout.episode, None) for rollout in rollouts)
        write_episodes(partial / "episodes.parquet", episodes, arm=arm.name, seed=seed, provenance=provenance)
        rows = [rollout_row(rollout) for rollout in rollouts]
        columns = [[row.input_ids for row in rows], [row.loss_mask for row in rows], kept]
        pq.write_table(
            pa.table(dict(zip(_ROLLOUTS.names, columns, strict=True)), _ROLLOUTS), partial / "rollouts.parquet"
        )
        counts = dict(zip(COUNTS, values, strict=True))
        write_json(partial / "counts.json", {**counts, "seconds": time.monotonic() - started})


def is_right(episode: Episode) -> bool:
    """Whether an answer is an exact match; an infrastructure failure never is."""
    failed = episode.stop_reason.is_infrastructure_failure
    return not failed and bool(exact_match(episode.answer, episode.question.golden_answers))


def kept_of(rollouts: Sequence[Rollout], rule: Literal["all", "one"]) -> list[bool]:
    """Which of one prompt's rollouts are learned from: the right, well-formed ones; with `one`, the first of them."""
    good = [is_right(rollout.episode) and rollout.episode.well_formed for rollout in rollouts]
    return [flag and not any(good[:place]) for place, flag in enumerate(good)] if rule == "one" else good


def kept_rows(folder: Path, chunks: Iterable[int]) -> Iterator[TokenRow]:
    """The kept rollouts of the run in `folder`, in the order of chunks and prompts."""
    for chunk in chunks:
        table = pq.read_table(chunk_folder(folder, chunk) / "rollouts.parquet", filters=[("kept", "=", True)])
        for row in table.select(SCHEMA.names).to_pylist():
            yield TokenRow(**row)


def total_counts(folder: Path, chunks: Iterable[int]) -> dict[str, float]:
    """The counts of all chunks, named sampled/...; sampled/seconds is their sum."""
    found = [read_json(chunk_folder(folder, chunk) / "counts.json") for chunk in chunks]
    return {f"sampled/{name}": sum(counts[name] for counts in found) for name in (*COUNTS, "seconds")}
