"""A training job that is disturbed: nothing is lost, the reason is named, and it ends as one that was left alone.

Real jobs of veRL on the CPU, a minute or two each, so they run only when they are asked for (make test-faults).
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from checkout import ENVIRONMENT
from safetensors.torch import load_file
from slurm_node import processes
from small_disk import fill, small_disk
from torch.testing import assert_close
from training_job import CONFIG, INDEX, POLICY, TrainingJob

from parallelsearch.agent.hf_engine import HFEngine
from parallelsearch.config_files import load_study
from parallelsearch.evaluation.answering import answer_all
from parallelsearch.files import read_json
from parallelsearch.questions.store import read_questions
from parallelsearch.records import Episode
from parallelsearch.retrieval.serving.client import HttpRetriever
from parallelsearch.training.retriever_process import served_index

pytestmark = [pytest.mark.slow, pytest.mark.faults]

SIZES = {"training": {"steps": 4, "batch_size": 8, "mini_batch_size": 4, "micro_batch_size": 4, "save_every": 2}}
EVERY_STEP = {"training": {"save_every": 1}}
# Figures of the clock and of this machine.
UNEQUAL = ("timing_s/", "perf/", "seconds", "actor/perf/", "critic/perf/")
# Read off the log-probabilities of the sampled tokens, whose last bits depend on what is decoded beside them.
OF_VERL = ("actor/", "critic/", "training/", "response_length/")
ROUNDED = ("entropy", "actor/")


@pytest.fixture(scope="module")
def undisturbed(made: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingJob:
    """A run of four steps that nothing disturbed."""
    job = TrainingJob(made, tmp_path_factory.mktemp("undisturbed") / "run", "parallelsearch", SIZES)
    code, said = job.run()
    assert code == 0, said
    return job


@pytest.fixture
def job(made: Path, tmp_path: Path) -> TrainingJob:
    """The same run, to be disturbed: it saves after steps 2 and 4."""
    return TrainingJob(made, tmp_path / "run", "parallelsearch", SIZES)


def assert_same_run(job: TrainingJob, undisturbed: TrainingJob, unlogged: int | None = None) -> None:
    """Every episode and every figure of all steps, and the weights that are left.

    veRL's own figures are compared where the row has them of step `unlogged`, which veRL may not have lived to log.
    """
    assert job.done()["steps"] == undisturbed.done()["steps"] == 4
    assert job.steps() == [1, 2, 3, 4]
    for row, expected in zip(job.rows(), undisturbed.rows(), strict=True):
        keys = [key for key in expected if not key.startswith(UNEQUAL)]
        if row["step"] == unlogged:
            keys = [key for key in keys if key in row or not key.startswith(OF_VERL)]
        assert set(keys) <= set(row)
        for key in keys:
            close = pytest.approx(expected[key], abs=1e-5) if key.startswith(ROUNDED) else expected[key]
            assert row[key] == close, (row["step"], key)
    assert episodes(job) == episodes(undisturbed)
    weights, wanted = (load_file(run.folder / "policy" / "model.safetensors") for run in (job, undisturbed))
    assert_close(weights, wanted, rtol=0, atol=1e-5)  # the least step of Adam is 1e-4


def episodes(job: TrainingJob) -> list[tuple[Any, ...]]:
    keys = ("step", "qid", "reward", "em", "llm_calls", "searches", "response_tokens", "stop_reason")
    return sorted(tuple(str(record[key]) for key in keys) for record in job.records())


def trainer(job: TrainingJob) -> int:
    """veRL's main process."""
    [pid] = job.children("verl.trainer.main_ppo")
    return pid


def of_ray(job: TrainingJob, name: str) -> int:
    """raylet or gcs_server of the job's own Ray."""
    [pid] = [pid for pid in job.children() if name_of(pid) == name]
    return pid


def name_of(pid: int) -> str:
    """What a process calls itself, 15 letters; '' where it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True)
class Fault:
    """What is killed: `victims` are looked for once `ready` holds, and killed at the `moment`."""

    ready: Callable[[TrainingJob], object]
    victims: Callable[[TrainingJob], list[int]]
    reason: str
    saved: int
    moment: Callable[[TrainingJob], object] = lambda job: True


def step_3_has_begun(job: TrainingJob) -> bool:
    """Step 2 is saved, and of the third an episode is recorded."""
    return any(record["step"] == 3 for record in job.records())


def checkpoint_4_has_begun(job: TrainingJob) -> bool:
    return (job.folder / "checkpoints" / "global_step_4").exists()


KILLED = "veRL ended with exit code -9 after 2 saved of 4 steps"
OF_RAY = "because a process of Ray was ended; the same command goes on from there"
FAULTS = {
    "the trainer in a step": Fault(step_3_has_begun, lambda job: [trainer(job)], KILLED, saved=2),
    "all its processes in a checkpoint": Fault(
        step_3_has_begun, TrainingJob.children, KILLED, saved=2, moment=checkpoint_4_has_begun
    ),
    "Ray's raylet in a step": Fault(step_3_has_begun, lambda job: [of_ray(job, "raylet")], OF_RAY, saved=2),
    # Without it a job goes on for a minute, in which these few steps would be made.
    "Ray's GCS before the first step": Fault(
        lambda job: [pid for pid in job.children() if name_of(pid).startswith("ray::TaskRunner")],
        lambda job: [of_ray(job, "gcs_server")],
        OF_RAY,
        saved=0,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_run_whose_processes_are_killed_ends_as_one_that_was_left_alone(
    job: TrainingJob, undisturbed: TrainingJob, name: str
) -> None:
    fault = FAULTS[name]
    job.start()
    job.wait_for(lambda: fault.ready(job), f"{name} can be found")
    victims = fault.victims(job)
    job.wait_for(lambda: fault.moment(job), f"the moment for {name}")
    job.kill(*victims)
    code, said = job.end(timeout=300)
    assert code == 1
    [sentence] = [line for line in said.splitlines() if line.startswith("parallelsearch: ")]
    assert fault.reason in sentence and f"after {fault.saved} saved of 4 steps" in sentence
    code, said = job.run()
    assert code == 0, said
    assert f"step {fault.saved + 1}: reward" in said and f"step {fault.saved}: reward" not in said
    half = f"{job.folder}/checkpoints/global_step_4 is not gone on from and removed: "
    assert (half in said) is (fault.moment is checkpoint_4_has_begun)
    assert_same_run(job, undisturbed)


def test_a_command_that_is_killed_is_followed_by_no_second_writer(job: TrainingJob, undisturbed: TrainingJob) -> None:
    job.start()
    job.wait_for(lambda: step_3_has_begun(job), "step 3 has begun")
    before = job.children()
    job.wait_for(lambda: checkpoint_4_has_begun(job), "a checkpoint has begun")
    assert job.process
    job.process.kill()
    job.process.wait()
    job.start()  # at once: veRL's processes hear of it, and take a while to end
    goes_on = re.compile(r"^step \d: |, last sampled reward", flags=re.MULTILINE)
    job.wait_for(lambda: goes_on.search(job.output()), "it goes on")
    assert not set(before) & set(job.children())
    code, said = job.end()
    assert code == 0, said
    assert_same_run(job, undisturbed, unlogged=4)  # they may have saved step 4 before they were ended


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_gone_on_from(
    made: Path, tmp_path: Path, undisturbed: TrainingJob
) -> None:
    job = TrainingJob(made, tmp_path / "run", "parallelsearch", SIZES, EVERY_STEP)
    job.start()
    job.wait_for_step(3)
    job.kill(*job.children())
    job.end()
    newest = int(job.checkpoints()[-1].rpartition("_")[2])
    kept = read_marker(job)
    assert kept >= 2 and len(job.checkpoints()) >= 2
    shutil.rmtree(job.folder / "checkpoints" / f"global_step_{newest}") if newest > kept else None
    moments = job.folder / "checkpoints" / f"global_step_{kept}" / "actor" / "optim_world_size_1_rank_0.pt"
    content = bytearray(moments.read_bytes())
    content[len(content) // 2] ^= 0x10  # one bit, in the middle of a tensor
    moments.write_bytes(content)
    code, said = job.run()
    assert code == 0, said
    named = f"{moments.parents[1]} is not gone on from and removed: {moments} is damaged"
    assert named in said and f"step {kept}: reward" in said
    assert_same_run(job, undisturbed)


def read_marker(job: TrainingJob) -> int:
    return int((job.folder / "checkpoints" / "latest_checkpointed_iteration.txt").read_text())


def test_with_another_configuration_a_run_starts_anew_and_the_old_one_is_kept(made: Path, job: TrainingJob) -> None:
    job.start()
    job.wait_for(lambda: step_3_has_begun(job), "step 3 has begun")
    job.kill(trainer(job))
    job.end()
    rows, checkpoints = job.rows(), job.checkpoints()
    other = TrainingJob(
        made, job.folder, "parallelsearch", SIZES, {"training": {"steps": 1, "actor_learning_rate": 2e-4}}
    )
    code, said = other.run()
    assert code == 0, said
    [aside] = job.folder.parent.glob("run.superseded-*")
    changed = "training.steps was 4 and is 1, training.actor_learning_rate was 0.0001 and is 0.0002"
    assert f"{job.folder} starts anew, what was there is now {aside}: {changed}" in said
    assert other.steps() == [1] and other.done()["steps"] == 1
    kept = TrainingJob(made, aside, "parallelsearch")
    assert (kept.rows(), kept.checkpoints()) == (rows, checkpoints)


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
    questions = read_questions(made / "results" / "questions" / "geoworld.test.parquet")
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
    assert all("could not be reached" in str(first[number].error) for number in lost)
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
