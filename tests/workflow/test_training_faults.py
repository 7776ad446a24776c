"""A training job whose processes are killed, or that finds other files than it left: it ends as one left alone.

Real jobs of veRL on the CPU, a minute or two each, so they run only when they are asked for (make test-faults).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from training_job import TrainingJob, step_3_has_begun
from undisturbed_run import EVERY_STEP, SIZES, assert_same_run

pytestmark = [pytest.mark.slow, pytest.mark.faults]


@pytest.fixture
def job(made: Path, tmp_path: Path) -> TrainingJob:
    """The same run, to be disturbed: it saves after steps 2 and 4."""
    return TrainingJob(made, tmp_path / "run", "parallelsearch", SIZES)


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
