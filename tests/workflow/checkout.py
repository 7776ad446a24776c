"""A checkout of the workflow in a temporary folder, and what Snakemake would run in it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("Snakefile", "workflow", "config", "profiles", "envs", "slurm", "src")
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


@dataclass
class Plan:
    """What a dry run announced: number of jobs of each rule, and the command lines without settings."""

    output: str
    counts: dict[str, int] = field(default_factory=dict)
    jobs: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, output: str) -> Plan:
        counts = dict(re.findall(r"^(\w+) +(\d+)$", output.rpartition("Job stats:")[2], flags=re.MULTILINE))
        counts.pop("total", None)
        commands = re.findall(r"^(?:Shell command: )?\s*(?:exec )?(parallelsearch .*)$", output, flags=re.MULTILINE)
        return cls(output, {rule: int(n) for rule, n in counts.items()}, {_job(command) for command in commands})


def _job(command: str) -> str:
    """'train parallelsearch 0' of a command line: the verb, and the arm and seed or the first argument."""
    words = shlex.split(command)
    verb = words[1]
    if "--arm" in words:
        return f"{verb} {words[words.index('--arm') + 1]} {words[words.index('--seed') + 1]}"
    return f"{verb} {words[2]}"


class Checkout:
    """The workflow's files in a folder of their own, so that a test may edit them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.seconds = 0.0  # wall time of the run that made its results
        for part in PARTS:
            source = ROOT / part
            if source.is_symlink():
                (root / part).symlink_to(source.readlink())
            elif source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
                shutil.copytree(source, root / part, ignore=ignored)
            else:
                shutil.copy(source, root / part)

    def snakemake(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["snakemake", *arguments],
            cwd=self.root,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
        )

    def plan(self, *arguments: str) -> Plan:
        done = self.snakemake("-n", "-p", *arguments)
        assert done.returncode == 0, done.stdout
        return Plan.read(done.stdout)

    def refusal(self, *arguments: str) -> str:
        """What a dry run says that is refused."""
        done = self.snakemake("-n", *arguments)
        assert done.returncode != 0, done.stdout
        assert "Building DAG" not in done.stdout
        return done.stdout

    def finish(self, *targets: str) -> None:
        """Makes every file that `targets` need and records it as made with the present configuration."""
        listed = self.snakemake("--summary", *targets)
        assert listed.returncode == 0, listed.stdout
        for line in listed.stdout.splitlines():
            path = line.split("\t")[0]
            if path.startswith("results"):
                (self.root / path).parent.mkdir(parents=True, exist_ok=True)
                (self.root / path).write_text("made by a test\n")
        touched = self.snakemake("--touch", "--forceall", *targets)
        assert touched.returncode == 0, touched.stdout

    def edit(self, file: str, before: str, after: str) -> None:
        path = self.root / file
        text = path.read_text()
        assert text.count(before) == 1, f"{before!r} stands {text.count(before)} times in {file}"
        path.write_text(text.replace(before, after))
