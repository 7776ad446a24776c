"""What goes wrong on clusters, on a real Slurm: nothing is lost, nobody writes twice, the reason is named."""

from __future__ import annotations

import os
import shlex
import signal

import pytest
from slurm_node import ENDED, processes, wait_until
from slurm_study import SmokeStudy, Training

from parallelsearch.machine.slurm import parse_duration

pytestmark = pytest.mark.slurm

LONG = 3600  # seconds; a training job takes about two minutes on a machine of its own
NEVER = 1000  # steps between checkpoints: what is saved was saved because the job was asked to end


def trainers(training: Training) -> list[int]:
    """veRL's main processes of a run."""
    return processes("verl.trainer.main_ppo", f"default_local_dir='{training.folder}/")


def _elapsed(training: Training) -> float:
    """Seconds that the newest job has run."""
    job = training.jobs()[-1].number
    seconds = parse_duration(training.node.run("squeue", "--noheader", f"--jobs={job}", "--format=%M").strip())
    assert seconds is not None
    return seconds


def test_a_job_near_its_time_limit_saves_and_the_next_attempt_goes_on_from_there(slurm_study: SmokeStudy) -> None:
    training = Training(slurm_study, "no-decomposition-reward", steps=90, save_every=NEVER)
    workflow = training.start()
    training.wait_for_step(2, attempt=1)
    [first] = training.jobs()
    # The limit of a job that runs is lowered, however fast this machine is, to less than saving might take.
    wait_until(lambda: _elapsed(training) % 60 < 10, 60, "a minute has just begun")
    minutes = int(_elapsed(training) // 60) + 1
    slurm_study.node.run("scontrol", "update", f"JobId={first.number}", f"TimeLimit={minutes}")
    assert workflow.wait(LONG) == 0, training.log.read_text()[-6000:]
    first, second = training.jobs()
    assert (first.state, second.state) == ("FAILED", "COMPLETED")  # it ended itself: not TIMEOUT
    log = training.log.read_text()
    assert f"the job ended because its Slurm job {first.number} reaches its time limit in" in log
    saved = int(log.split("; step ")[1].split(" of 90 is saved")[0])
    assert 2 <= saved < 90
    assert training.steps() == list(range(1, 91))
    own = (slurm_study.results / "logs" / "train" / f"{training.arm}.seed0.log").read_text()
    assert own.index(f"step {saved + 1}: reward") == own.index("step ")  # the second attempt's first step
    assert training.done()["steps"] == 90 and not training.lock.exists()


def test_a_cancelled_job_saves_and_a_killed_trainer_costs_the_steps_since_its_last_checkpoint(
    slurm_study: SmokeStudy,
) -> None:
    training = Training(slurm_study, "no-search-count-reward", steps=24, save_every=10)
    workflow = training.start()
    training.wait_for_step(2, attempt=1)
    cancelled = training.jobs()[0]
    slurm_study.node.run("scancel", str(cancelled.number))
    training.wait_for_step(12, attempt=2)
    [trainer] = trainers(training)
    os.kill(trainer, signal.SIGKILL)
    wait_until(lambda: len(training.jobs()) == 3, 600, "the job is submitted a third time")
    assert workflow.wait(LONG) == 0, training.log.read_text()[-6000:]
    assert [job.state for job in training.jobs()] == ["CANCELLED", "FAILED", "COMPLETED"]
    log = training.log.read_text()
    assert "the job ended because it was sent SIGTERM; step" in log
    assert "veRL ended with exit code -9 after 10 saved of 24 steps" in log
    assert training.steps() == list(range(1, 25))
    assert training.done()["steps"] == 24
    wait_until(lambda: not processes(f"{training.folder}/"), 60, "all processes of the run have ended")


def test_after_a_killed_controller_the_job_that_goes_on_is_not_doubled(slurm_study: SmokeStudy) -> None:
    training = Training(slurm_study, "parallelsearch-bounded", steps=60, save_every=NEVER)
    command = training.command()
    lost = training.start()
    wait_until(training.lock.exists, 600, "the first job holds its lock")
    [first] = training.jobs()
    assert f'"slurm_job": "{first.number}"' in training.lock.read_text()
    # One that starts beside it, submitted before the first had its lock or by hand: nothing made it wait.
    step = ("srun", "--time=5", "--mem=1000", "--chdir", str(slurm_study.root))
    refused = slurm_study.node.run("bash", "-c", f"{shlex.join(step)} {command} 2>&1 || true", timeout=120)
    assert f"is being written by Slurm job {first.number}" in refused
    assert f"wait for it (squeue --jobs={first.number}) or end it (scancel {first.number})" in refused

    training.wait_for_step(1, attempt=1)
    lost.send_signal(signal.SIGKILL)
    lost.wait()
    training.unlock()
    workflow = training.start()
    wait_until(lambda: len(training.jobs()) == 2, 600, "the job is submitted a second time")
    writers = 0
    while (states := [job.state for job in training.jobs()])[0] not in ENDED:
        assert states[1] == "PENDING"
        assert f"afterany:{first.number}" in training.jobs()[1].dependency
        writers = max(writers, len(trainers(training)))
    assert writers == 1
    assert workflow.wait(LONG) == 0, training.log.read_text()[-6000:]
    assert [job.state for job in training.jobs()] == ["COMPLETED", "COMPLETED"]
    assert training.steps() == list(range(1, 61))
    own = (slurm_study.results / "logs" / "train" / f"{training.arm}.seed0.log").read_text()
    assert "is complete already" in own and "step " not in own
    assert training.done()["steps"] == 60


def test_a_job_that_gets_other_gpus_than_the_configuration_says_ends_before_verl_starts(
    slurm_study: SmokeStudy,
) -> None:
    """The node's two GPUs are none that PyTorch knows."""
    training = Training(slurm_study, "top-k-1", device="cuda", gpus_per_node=2, steps=1)
    site = ("train:mem_mb=3000", "train:cpus_per_task=2")  # what 8 GPUs of a real node would have beside them
    workflow = training.start("--retries", "0", "--set-resources", *site)
    assert workflow.wait(LONG) == 1
    [job] = training.jobs()
    assert (job.state, job.partition) == ("FAILED", "gpu")
    assert "cpu=2,mem=3000M" in slurm_study.node.ended(job)["Tres"]
    shown = "PyTorch 0 GPUs (CUDA_VISIBLE_DEVICES: 0,1, SLURM_GPUS_ON_NODE: 2)"
    assert f"training.gpus_per_node is 2, but this node shows {shown}" in training.log.read_text()
    assert not (training.folder / "verl.log").exists()
