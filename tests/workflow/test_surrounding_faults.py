"""What surrounds a training job or an evaluation fails, or asks it to end: nothing is lost and the reason is named.

Real jobs on the CPU, a minute or two each, so they run only when they are asked for (make test-faults).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from checkout import ENVIRONMENT
from slurm_node import processes
from small_disk import fill, small_disk
from training_job import CONFIG, INDEX, POLICY, QUESTIONS, TrainingJob, step_3_has_begun
from undisturbed_run import EVERY_STEP, SIZES, assert_same_run

from parallelsearch.config_files import load_study
from parallelsearch.engines.hf import HFEngine
from parallelsearch.evaluation.answering import answer_all
from parallelsearch.files import read_json
from parallelsearch.questions.store import read_questions
from parallelsearch.records import Episode
from parallelsearch.retrieval.serving.client import HttpRetriever
from parallelsearch.training.process.retriever_process import served_index

pytestmark = [pytest.mark.slow, pytest.mark.faults]


def test_a_disk_that_fills_up_while_a_checkpoint_is_written_is_named_and_costs_nothing(
    made: Path, tmp_path: Path, undisturbed: TrainingJob
) -> None:
    with small_disk(tmp_path / "disk", 64) as disk:
        job = TrainingJob(made, disk / "run", "parallelsearch", SIZES)
        job.start()
        job.wait_for(lambda: step_3_has_begun(job), "step 3 has begun")
        filler = fill(disk, leave=1 << 20)
        code, said = job.end(timeout=300)
        assert code == 1
        sentence = said.strip().splitlines()[-1]
        ended = "veRL ended with exit code 1 after 2 saved of 4 steps"
        assert sentence.startswith(f"parallelsearch: the disk of {job.folder} is full: {ended}")
        assert "free some, or put the study's results on a larger disk, and start the same command again" in sentence
        assert job.checkpoints() == ["global_step_2"] and not (job.folder / "done.json").exists()
        filler.unlink()
        code, said = job.run()
        assert code == 0, said
        assert_same_run(job, undisturbed)


def test_a_shared_retriever_that_is_killed_in_a_search_ends_the_job_with_that_reason(
    made: Path, tmp_path: Path, undisturbed: TrainingJob
) -> None:
    own = tmp_path / "made"
    shutil.copytree(made / "results", own / "results", symlinks=True)
    strict = {"training": {"guard": {"failures": 0.1}}}
    job = TrainingJob(own, tmp_path / "run", "parallelsearch", SIZES, EVERY_STEP, strict)
    retriever = serve(own / INDEX, tmp_path / "retriever.log")
    try:
        job.start()
        job.wait_for_step(1)
        retriever.send_signal(signal.SIGSTOP)  # so that it has requests, whatever this machine's pace
        job.wait_for(lambda: pending_requests(retriever.pid), "a search waits for an answer")
    finally:
        retriever.kill()
        retriever.wait()
    code, said = job.end()
    assert code == 1
    failed = read_json(job.folder / "failed.json")
    assert failed["kind"] == "infrastructure" and failed["step"] >= 2
    sentence = said.strip().splitlines()[-1]
    assert "were lost to failures of the retriever or the generation engine" in sentence
    assert "repair it and start the same command again, which goes on from there" in sentence
    assert any("could not be reached" in str(record["error"]) for record in job.records())
    retriever = serve(own / INDEX, tmp_path / "retriever.log")
    try:
        code, said = job.run()
    finally:
        retriever.terminate()
        retriever.wait()
    assert code == 0, said
    assert f"step {failed['step']}: reward" in said and "step 1: reward" not in said
    assert_same_run(job, undisturbed)


def test_an_evaluation_whose_retriever_is_killed_loses_some_episodes_and_names_the_reason(
    made: Path, tmp_path: Path
) -> None:
    """A job's own server is started again; what was searched meanwhile counts as failed, and is answered next time."""
    questions = read_questions(made / QUESTIONS)[:24]
    agent = load_study(CONFIG / "smoke.yaml", config_dir=CONFIG).agent
    engine = HFEngine.open(made / POLICY / "policy")
    done: list[Episode] = []

    def kill_after_some(episode: Episode) -> None:
        done.append(episode)
        if len(done) == 4:
            [server] = processes("retriever serve".replace(" ", "\0"), str(tmp_path))
            os.kill(server, signal.SIGKILL)

    async def answered(url: str, finished: Callable[[Episode], None]) -> list[Episode]:
        async with HttpRetriever(url) as retriever:
            settings = {"temperature": 1.0, "seed": 3, "in_flight": 4, "finished": finished}
            return await answer_all(questions, engine, retriever, agent, **settings)

    with served_index(made / INDEX, tmp_path) as url:
        first = asyncio.run(answered(url, kill_after_some))
        asyncio.run(HttpRetriever(url).wait_until_ready(60))
        second = asyncio.run(answered(url, lambda episode: None))
    engine.close()
    lost = [number for number, episode in enumerate(first) if episode.stop_reason == "retriever_error"]
    assert len(first) == len(second) == len(questions) and lost
    reasons = {str(first[number].error) for number in lost}  # nobody is there, or the new server is not ready yet
    assert all(url in reason for reason in reasons) and any("could not be reached" in reason for reason in reasons)
    assert not any(episode.stop_reason.is_infrastructure_failure for episode in second)
    for number, (before, after) in enumerate(zip(first, second, strict=True)):
        if number not in lost:
            assert [turn.text for turn in before.turns] == [turn.text for turn in after.turns]


def serve(index: Path, log: Path) -> subprocess.Popen[bytes]:
    """A retriever for all jobs over this index (docs/cluster.md), once it answers."""
    ready = index / "retriever.json"
    ready.unlink(missing_ok=True)
    command = ["parallelsearch", "retriever", "serve", "--index", str(index), "--port", "0", "--ready-file", str(ready)]
    with log.open("ab") as stream:
        process = subprocess.Popen(command, env=ENVIRONMENT, stdout=stream, stderr=subprocess.STDOUT)
    end = time.monotonic() + 120
    while not ready.exists():
        assert process.poll() is None and time.monotonic() < end, log.read_text()
        time.sleep(0.1)
    return process


def pending_requests(pid: int) -> bool:
    """Whether a connection of that process holds bytes that it has not read."""
    inodes = {str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()}
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(f"socket:[{line[9]}]" in inodes and int(line[4].partition(":")[2], 16) > 0 for line in lines)


def test_a_supervised_job_that_is_asked_to_end_saves_and_goes_on(made: Path, tmp_path: Path) -> None:
    sizes = {"training": {"steps": 40, "batch_size": 8, "micro_batch_size": 4, "save_every": 1000}}
    job = TrainingJob(made, tmp_path / "run", "sft", sizes)
    job.start()
    job.wait_for_step(2)
    assert job.process
    job.process.terminate()
    code, said = job.end()
    saved = int(said.split("it was sent SIGTERM; step ")[1].split(" of 40 is saved")[0])
    assert code == 75 and 2 <= saved < 40
    code, said = job.run()
    assert code == 0, said
    assert said.startswith(f"step {saved + 1}: loss")
    assert job.steps() == list(range(1, 41)) and job.done()["steps"] == 40


def test_sampling_that_is_asked_to_end_keeps_what_it_has(made: Path, tmp_path: Path) -> None:
    sizes = {"training": {"steps": 6, "batch_size": 8, "micro_batch_size": 4, "rejection_samples": 8}}
    job = TrainingJob(made, tmp_path / "run", "rejection-sampling", sizes)
    job.start()
    job.wait_for(lambda: "sampled 8 prompts" in job.output(), "a chunk is sampled")
    assert job.process
    job.process.terminate()
    code, said = job.end()
    chunks = {path: path.stat().st_mtime_ns for path in job.folder.glob("sampled/chunk-*/rollouts.parquet")}
    assert code == 75 and 1 <= len(chunks) < 6
    assert f"the job ended because it was sent SIGTERM; {len(chunks)} of 6 chunks are sampled" in said
    job.run()  # whether a policy that has learned nothing was ever right is another matter
    assert len(list(job.folder.glob("sampled/chunk-*"))) == 6
    assert {path: path.stat().st_mtime_ns for path in chunks} == chunks
