"""`parallelsearch train` of one arm over the smoke study's first stages: started, disturbed, looked at."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from checkout import ENVIRONMENT, ROOT
from slurm_node import processes

from parallelsearch.config import ArmConfig
from parallelsearch.config_files import load_arm, load_study, merge, validated

CONFIG = ROOT / "config"
INDEX = "results/index/geoworld.multilingual-e5-small.flat"
QUESTIONS = "results/questions/geoworld.train.parquet"
POLICY = "results/warm_start/seed0"
# A policy that has learned nothing yet may well seem to collapse.
UNGUARDED = {"training": {"guard": {"enabled": False}}}


class TrainingJob:
    """One run's folder and the command that writes it. `made`: a folder with the smoke study's first stages."""

    def __init__(self, made: Path, folder: Path, arm: str, *overlays: Mapping[str, Any]) -> None:
        self.folder, self.log = folder, folder.with_name(f"{folder.name}.log")
        values = load_arm(load_study(CONFIG / "smoke.yaml", config_dir=CONFIG), arm, CONFIG).model_dump()
        for overlay in (UNGUARDED, *overlays):
            values = merge(values, overlay)
        settings = validated(ArmConfig, values, arm).model_dump_json()
        self._command = [
            *("parallelsearch", "train", str(folder), "--arm", arm, "--policy", str(made / POLICY), "--seed", "3"),
            *("--index", str(made / INDEX), "--questions", str(made / QUESTIONS), "--settings", settings),
        ]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """The command in the background, its output in a fresh log."""
        environment = {**ENVIRONMENT, "PYTHONPATH": str(ROOT / "src")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with self.log.open("wb") as stream:
            self.process = subprocess.Popen(
                self._command, env=environment, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
            )

    def end(self, timeout: float = 900) -> tuple[int, str]:
        """Waits for the command: its exit code, and all that it said."""
        assert self.process
        return self.process.wait(timeout), self.output()

    def run(self, timeout: float = 900) -> tuple[int, str]:
        """The command from start to end."""
        self.start()
        return self.end(timeout)

    def output(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def wait_for(self, condition: Callable[[], object], what: str, timeout: float = 600) -> None:
        """Until `condition` holds while the command runs."""
        assert self.process
        end = time.monotonic() + timeout
        while not condition():
            assert self.process.poll() is None, f"the job ended before {what}:\n{self.output()[-3000:]}"
            assert time.monotonic() < end, f"waited {timeout:.0f} s until {what}"
            time.sleep(0.02)

    def wait_for_step(self, step: int) -> None:
        """Until the running job has made that step."""
        self.wait_for(lambda: step in self.steps(), f"step {step}")

    def rows(self) -> list[dict[str, Any]]:
        """metrics.jsonl."""
        path = self.folder / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def records(self) -> list[dict[str, Any]]:
        """One record an episode."""
        whole = [line for path in self.folder.glob("records/*.jsonl") for line in path.read_bytes().split(b"\n")[:-1]]
        return [json.loads(line) for line in whole]

    def steps(self) -> list[int]:
        return [row["step"] for row in self.rows()]

    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "checkpoints").glob("global_step_*"))

    def children(self, *words: str) -> list[int]:
        """Processes of this run whose command line or environment holds `words`."""
        return processes(f"{self.folder}/", *words)

    def kill(self, *pids: int) -> None:
        """SIGKILL."""
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    def done(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "done.json").read_text())
        return found


def step_3_has_begun(job: TrainingJob) -> bool:
    """Step 2 is saved, and of the third an episode is recorded."""
    return any(record["step"] == 3 for record in job.records())
