"""A Slurm on this machine for tests, and the workflow on it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from checkout import ENVIRONMENT

SCRIPT = Path(__file__).with_name("one-node-slurm.sh")
# What the tests change in the profile: they need not wait for a shared file system, nor spare a busy controller.
QUICK = ("--latency-wait", "10", "--slurm-init-seconds-before-status-checks", "2")
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "BOOT_FAIL"}


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One line of squeue. `rule` is the workflow's rule with its wildcards, which the executor puts in the comment."""

    number: int
    state: str
    rule: str
    partition: str
    dependency: str


class SlurmNode:
    """A running one-node Slurm; `folder` holds its configuration and logs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **ENVIRONMENT,
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{folder / 'bin'}{os.pathsep}{ENVIRONMENT['PATH']}",
        }
        for name in ("SLURM_JOB_ID", "PYTHONDONTWRITEBYTECODE"):
            self.environment.pop(name, None)

    def run(self, *command: str, timeout: float = 60) -> str:
        """Output of one of Slurm's commands."""
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=timeout, check=True
        ).stdout

    def jobs(self) -> list[SlurmJob]:
        """All jobs of the workflow that the controller remembers, in order; not what was started by hand."""
        listed = self.run("squeue", "--states=all", "--noheader", "--sort=i", "--format=%i|%T|%k|%P|%E")
        rows = [line.strip().split("|") for line in listed.splitlines()]
        return [
            SlurmJob(int(number), state, rule.strip().removeprefix("rule_"), partition, dependency)
            for number, state, rule, partition, dependency in rows
            if rule.strip().startswith("rule_")
        ]

    def jobs_of(self, rule: str) -> list[SlurmJob]:
        """Jobs whose rule and wildcards start with `rule`."""
        return [job for job in self.jobs() if job.rule.startswith(rule)]

    def ended(self, job: SlurmJob) -> dict[str, str]:
        """What Slurm's record of ended jobs says of one: TimeLimit, Tres, NodeCnt and so on."""
        record = (self.folder / "jobs.txt").read_text()
        [line] = [line for line in record.splitlines() if line.startswith(f"JobId={job.number} ")]
        return dict(word.split("=", 1) for word in line.split() if "=" in word)

    def wait_for_jobs(self, timeout: float = 300) -> None:
        """Until no job is pending or running."""
        wait_until(lambda: all(job.state in ENDED for job in self.jobs()), timeout, "the jobs have ended")

    def start_workflow(self, root: Path, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
        """`snakemake --profile slurm ARGUMENTS` in `root`, in the background."""
        with log.open("ab") as stream:
            return subprocess.Popen(
                ["snakemake", "--profile", "slurm", *QUICK, *arguments],
                cwd=root,
                env=self.environment,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def workflow(self, root: Path, *arguments: str, log: Path, timeout: float = 1800) -> int:
        """Exit code of `snakemake --profile slurm ARGUMENTS` in `root`; its jobs are cancelled after `timeout`."""
        process = self.start_workflow(root, *arguments, log=log)
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            process.wait(60)
            raise
        finally:
            if process.poll() is None:
                process.kill()


@contextmanager
def slurm_node(nodes: int = 1) -> Iterator[SlurmNode]:
    """Brings up a Slurm with so many nodes on this machine, and takes it down."""
    folder = Path(tempfile.mkdtemp(prefix="parallelsearch-slurm-"))
    # A step has to end, and its checkpoint to be written, between SIGTERM and SIGKILL.
    environment = {**os.environ, "NODES": str(nodes), "KILL_WAIT": "120"}
    subprocess.run([SCRIPT, "up", folder], env=environment, check=True, timeout=600)
    node = SlurmNode(folder)
    # Its daemons outlive this process where that is ended by a signal that is no exception.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield node
    finally:
        signal.signal(signal.SIGTERM, before)
        if running := [str(job.number) for job in node.jobs() if job.state not in ENDED]:
            node.run("scancel", "--signal=KILL", "--full", *running)
        subprocess.run([SCRIPT, "down", folder], check=True, timeout=120)
        shutil.rmtree(folder)


def wait_until(condition: Callable[[], object], timeout: float, what: str) -> None:
    """Waits until `condition` holds; fails when it does not in `timeout` seconds."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"waited {timeout:.0f} s until {what}"
        time.sleep(0.5)


def processes(*words: str) -> list[int]:
    """Processes whose command line and environment together hold all of `words`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                text = b"".join((entry / name).read_bytes() for name in ("cmdline", "environ"))
            except OSError:  # it has ended, or is somebody else's
                continue
            if all(word.encode() in text for word in words):
                found.append(int(entry.name))
    return found
