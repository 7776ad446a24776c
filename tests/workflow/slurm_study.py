"""The smoke study on a one-node Slurm, and single training jobs over what it made."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from checkout import Checkout, Plan
from slurm_node import SlurmJob, SlurmNode, wait_until

SMOKE = ("--configfile", "config/smoke.yaml")
RESULTS = "results-smoke"


class SmokeStudy:
    """The finished smoke study: its checkout, what was planned, and the jobs that Slurm had."""

    def __init__(self, root: Path, node: SlurmNode) -> None:
        self.checkout = Checkout(root)
        self.root = root
        self.results = root / RESULTS
        self.node = node
        self.plan: Plan = self.checkout.plan("--profile", "slurm", *SMOKE, "--", "all")
        self.log = root / "snakemake.log"
        self.code = node.workflow(root, *SMOKE, "--", "all", log=self.log, timeout=7200)
        self.jobs: list[SlurmJob] = node.jobs()


class Training:
    """One further arm of the study, trained in a Slurm job of its own over the study's policy, index and questions."""

    def __init__(self, study: SmokeStudy, arm: str, **training: int | str) -> None:
        self.study, self.arm, self.node = study, arm, study.node
        self.folder = study.results / "train" / arm / "seed0"
        self.lock = self.folder.with_name("seed0.lock")
        self.log = study.root / f"snakemake-{arm}.log"
        overlay = study.root / "config" / f"training-{arm}.yaml"
        unguarded = {"guard": {"enabled": False}}  # a policy that has learned nothing yet may well seem to collapse
        overlay.write_text(json.dumps({"training": training | unguarded}))
        target = f"{RESULTS}/train/{arm}/seed0/done.json"
        self._arguments = (*SMOKE, f"config/{overlay.name}", "--", target)

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """Snakemake, in the background."""
        return self.node.start_workflow(self.study.root, *options, *self._arguments, log=self.log)

    def jobs(self) -> list[SlurmJob]:
        return [job for job in self.node.jobs_of("train") if f"_{self.arm}_" in f"{job.rule}_"]

    def steps(self) -> list[int]:
        """Steps of metrics.jsonl."""
        path = self.folder / "metrics.jsonl"
        return [json.loads(line)["step"] for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for_step(self, step: int, attempt: int, timeout: float = 1800) -> None:
        """Until the job of that attempt runs and has made that step."""

        def made() -> bool:
            jobs = self.jobs()
            return len(jobs) == attempt and jobs[-1].state == "RUNNING" and max(self.steps(), default=0) >= step

        wait_until(made, timeout, f"attempt {attempt} has made step {step} of {self.arm}")

    def done(self) -> dict[str, object]:
        found: dict[str, object] = json.loads((self.folder / "done.json").read_text())
        return found

    def unlock(self) -> None:
        """What a user does after a Snakemake that was killed."""
        subprocess.run(
            ["snakemake", "--profile", "slurm", "--unlock", *self._arguments],
            cwd=self.study.root,
            env=self.node.environment,
            check=True,
            capture_output=True,
            timeout=120,
        )

    def command(self) -> str:
        """The training command as Snakemake would run it, its output left to the caller."""
        planned = self.study.checkout.snakemake("-n", "-p", "--profile", "slurm", *self._arguments).stdout
        [line] = re.findall(r"(parallelsearch train .*) > \S+ 2>&1$", planned, flags=re.MULTILINE)
        return str(line)
