"""Rejection sampling: what is kept, what is stored of a chunk, and that finished chunks are not sampled again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from scripted import FailingRetriever, ScriptedEngine

from parallelsearch.agent.episode import Rollout
from parallelsearch.config import ArmConfig, Bm25Config
from parallelsearch.config_files import load_arm, load_study
from parallelsearch.corpus.passages import build_corpus
from parallelsearch.errors import TrainingError
from parallelsearch.evaluation.episodes import Provenance, read_episodes, read_provenance
from parallelsearch.questions.store import write_questions
from parallelsearch.records import Episode, Question, StopReason, Structure
from parallelsearch.retrieval.indexes.bm25 import write_bm25
from parallelsearch.training.rejection_sampling import (
    chunk_count,
    chunk_folder,
    kept_of,
    kept_rows,
    sample_chunk,
    total_counts,
)
from parallelsearch.training.sampling_job import SamplingSettings, sample_share, train_on_own_episodes
from parallelsearch.training.warm_start.policy import build_policy, save_policy, train_tokenizer

CONFIG = Path(__file__).resolve().parents[2] / "config"
STUDY = load_study(config_dir=CONFIG)
SEARCH = "<think>look</think><search>capital of Norway</search>"
RIGHT = "<think>so</think><answer>Oslo</answer>"
WRONG = "<think>so</think><answer>Bergen</answer>"
BARE = "<answer>Oslo</answer>"  # right, but without the thinking that the format asks for
QUESTIONS = [
    Question(f"q{n}", "geoworld", "train", f"What is the capital of Norway ({n})?", ("Oslo",), "s", Structure.SINGLE)
    for n in range(3)
]
ORIGIN = Provenance("1", "2", "3", "4", 1)


def arm(samples: int = 3, keep: str = "all", batch_size: int = 1) -> ArmConfig:
    loaded = load_arm(STUDY, "rejection-sampling", CONFIG)
    changes = {"rejection_samples": samples, "rejection_keep": keep, "batch_size": batch_size}
    limits = {"max_prompt_tokens": 400, "max_generation_tokens": 200, "max_response_tokens": 2000}
    return loaded.model_copy(
        update={
            "training": loaded.training.model_copy(update=changes),
            "agent": loaded.agent.model_copy(update={**limits, "max_sub_query_result_tokens": 400}),
        }
    )


def sample(folder: Path, engine, retriever, chunk: int = 0, **changes) -> None:
    asyncio.run(sample_chunk(folder, arm(**changes), 7, chunk, QUESTIONS, engine, retriever, ORIGIN))


def rollout(answer: str | None, well_formed: bool = True, stop: StopReason = StopReason.ANSWERED) -> Rollout:
    return Rollout(Episode(QUESTIONS[0], (), answer, stop, well_formed), [1], [2], [1], [0.0])


def test_right_well_formed_episodes_are_kept_all_of_them_or_the_first() -> None:
    group = [
        rollout("Bergen"),
        rollout("the oslo."),  # an exact match after SQuAD's normalisation
        rollout("Oslo", well_formed=False),
        rollout("Oslo", stop=StopReason.RETRIEVER_ERROR),
        rollout("Oslo"),
        rollout(None, stop=StopReason.TURN_LIMIT),
    ]
    assert kept_of(group, "all") == [False, True, False, False, True, False]
    assert kept_of(group, "one") == [False, True, False, False, False, False]


def test_a_chunk_holds_every_episode_its_rollout_and_its_counts(byte_tokenizer, retriever, tmp_path: Path) -> None:
    engine = ScriptedEngine(byte_tokenizer, [SEARCH, RIGHT, WRONG, BARE])
    sample(tmp_path, engine, retriever, chunk=1)
    folder = chunk_folder(tmp_path, 1)
    episodes = [episode for episode, _ in read_episodes(folder / "episodes.parquet")]
    assert [episode.answer for episode in episodes] == ["Oslo", "Bergen", "Oslo"]
    assert {episode.question.qid for episode in episodes} == {"q1"}
    assert read_provenance(folder / "episodes.parquet").index_sha256 == "2"
    counts = json.loads((folder / "counts.json").read_text())
    seconds = counts.pop("seconds")
    assert seconds >= 0
    assert counts == {"prompts": 1, "episodes": 3, "failures": 0, "right": 2, "kept": 1, "kept_prompts": 1}
    assert total_counts(tmp_path, [1])["sampled/kept"] == 1
    (row,) = kept_rows(tmp_path, [1])
    own = [token for token, flag in zip(row.input_ids, row.loss_mask, strict=True) if flag]
    assert byte_tokenizer.decode(own) == SEARCH + RIGHT
    assert row.input_ids[: len(engine.inputs[0])] == engine.inputs[0]


def test_every_episode_of_a_run_has_a_seed_of_its_own(byte_tokenizer, retriever, tmp_path: Path) -> None:
    seeds = []
    for chunk in range(3):
        engine = ScriptedEngine(byte_tokenizer, [RIGHT] * 3)
        sample(tmp_path, engine, retriever, chunk=chunk)
        seeds += [sampling.seed for sampling in engine.samplings]
        assert {sampling.temperature for sampling in engine.samplings} == {1.0}
    assert len(set(seeds)) == 9


def test_failed_episodes_are_counted_and_a_chunk_of_failures_alone_is_no_chunk(
    byte_tokenizer, retriever, tmp_path: Path
) -> None:
    some = ScriptedEngine(byte_tokenizer, [RIGHT, SEARCH, RIGHT])
    sample(tmp_path, some, FailingRetriever(retriever, 0))
    assert total_counts(tmp_path, [0])["sampled/failures"] == 1
    with pytest.raises(TrainingError, match="Every one of 3 episodes failed; the first with: RetrieverError"):
        sample(tmp_path, ScriptedEngine(byte_tokenizer, [SEARCH] * 3), FailingRetriever(retriever, 0), chunk=1)
    assert not chunk_folder(tmp_path, 1).exists() and not list((tmp_path / "sampled").glob("*.partial"))


@pytest.fixture
def job(tmp_path: Path) -> SamplingSettings:
    """A real index and a real policy, which is untrained: it is never right."""
    towns = ("Oslo", "Bergen", "Stavanger", "Trondheim")
    rows = [{"id": n, "title": town, "text": f"{town} lies in Norway."} for n, town in enumerate(towns)]
    (tmp_path / "raw.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    build_corpus("geoworld", tmp_path / "raw.jsonl", tmp_path / "corpus")
    write_bm25(tmp_path / "corpus", tmp_path / "index", Bm25Config())
    tokenizer = train_tokenizer([question.text for question in QUESTIONS], 320)
    small = STUDY.policy.model_copy(update={"hidden_size": 16, "layers": 1, "heads": 2})
    save_policy(build_policy(small, tokenizer, 0), tokenizer, tmp_path / "policy")
    (tmp_path / "run").mkdir()
    write_questions(tmp_path / "questions.parquet", QUESTIONS)
    return SamplingSettings(
        folder=str(tmp_path / "run"),
        arm=arm(samples=2),
        seed=0,
        policy=str(tmp_path / "policy"),
        index=str(tmp_path / "index"),
        retriever_url=None,
        questions=str(tmp_path / "questions.parquet"),
    )


def test_a_process_samples_its_share_and_leaves_finished_chunks_alone(job: SamplingSettings) -> None:
    folder = Path(job.folder)
    assert chunk_count(job.arm, len(QUESTIONS)) == 3
    asyncio.run(sample_share(job, 0, 2))
    assert [chunk_folder(folder, chunk).exists() for chunk in range(3)] == [True, False, True]
    before = (chunk_folder(folder, 0) / "episodes.parquet").stat().st_mtime_ns
    asyncio.run(sample_share(job, 0, 1))
    assert total_counts(folder, range(3))["sampled/episodes"] == 6
    assert (chunk_folder(folder, 0) / "episodes.parquet").stat().st_mtime_ns == before


def test_a_policy_that_is_never_right_is_told_before_training(job: SamplingSettings) -> None:
    """The sampling process is a real one here; the last two of three chunks were left by an earlier run."""
    asyncio.run(sample_share(job, 1, 3))
    asyncio.run(sample_share(job, 2, 3))
    changed = job.arm.model_copy(update={"training": job.arm.training.model_copy(update={"steps": 3})})
    seen: list[dict] = []
    with pytest.raises(TrainingError, match="None of 6 sampled episodes was right and well-formed"):
        train_on_own_episodes(
            Path(job.folder), changed, 0, job.policy, Path(job.index), QUESTIONS, on_chunk=seen.append
        )
    assert [counts["sampled/prompts"] for counts in seen] == [3]
