"""Training curves: veRL's own metrics of a step joined with the records of its episodes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from parallelsearch.records import StopReason, Structure
from parallelsearch.training.run_folder import MetricsLog

_BY_STRUCTURE = (Structure.PARALLEL, Structure.SEQUENTIAL, Structure.MIXED, Structure.SINGLE)
_KEPT_PREFIXES = ("actor/", "critic/", "training/", "timing_s/", "perf/", "response_length/", "rollout_corr/")


class TrainingMetrics:
    """metrics.jsonl of a run that goes on after `finished_steps`."""

    def __init__(self, folder: Path, finished_steps: int) -> None:
        self.first_step = finished_steps + 1
        self.last: dict[str, Any] = {}
        self._records = folder / "records"
        self._log = MetricsLog(folder / "metrics.jsonl", keep_up_to=finished_steps)
        self.verl_log = folder / "data" / f"verl-metrics-from-{self.first_step}.jsonl"
        self.verl_log.unlink(missing_ok=True)
        for path in self._records.glob("*.jsonl"):
            _drop_later_steps(path, finished_steps)
        self._read = 0

    def collect(self, on_step: Callable[[dict[str, Any]], None]) -> None:
        """Writes the rows of steps veRL has logged since the last call; `on_step` sees each."""
        if not self.verl_log.exists():
            return
        lines = self.verl_log.read_bytes().split(b"\n")[:-1]
        rows = [json.loads(line) for line in lines[self._read :]]
        self._read = len(lines)
        for row in rows:
            step = int(row["step"])
            if step < self.first_step:
                continue
            self.last = {"step": step, **self.figures(step, row["data"])}
            self._log.append(self.last)
            on_step(self.last)

    def figures(self, step: int, data: dict[str, Any]) -> dict[str, float]:
        """The figures of a step, `data` being what veRL logged of it."""
        return {**episode_means(self._episodes(step)), **_verl_means(data)}

    def _episodes(self, step: int) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for path in sorted(self._records.glob("*.jsonl")):
            for line in path.read_text(encoding="utf-8").splitlines():
                record = json.loads(line)
                if record["step"] == step:
                    found[record["episode"]] = record
        return list(found.values())


def episode_means(records: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Means over the sampled episodes of a step, over all and by structure; failures are only counted."""
    counted = [record for record in records if not StopReason(record["stop_reason"]).is_infrastructure_failure]
    means: dict[str, float] = {"episodes": len(records), "failures": len(records) - len(counted)}
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in counted:
        groups[""].append(record)
        groups[f"/{record['structure']}"].append(record)
    for suffix in ("", *(f"/{structure}" for structure in _BY_STRUCTURE)):
        group = groups.get(suffix)
        if group:
            means |= {
                f"reward_mean{suffix}": fmean(record["reward"]["total"] for record in group),
                f"em{suffix}": fmean(record["em"] for record in group),
                f"decomposition_ratio{suffix}": fmean(record["decomposed"] for record in group),
                f"turns{suffix}": fmean(record["llm_calls"] for record in group),
                f"searches{suffix}": fmean(record["searches"] for record in group),
                f"well_formed{suffix}": fmean(record["well_formed"] for record in group),
                f"response_tokens{suffix}": fmean(record["response_tokens"] for record in group),
                f"model_tokens{suffix}": fmean(record["model_tokens"] for record in group),
            }
    return means


def _verl_means(data: dict[str, Any]) -> dict[str, float]:
    kept = {
        key: float(value)
        for key, value in data.items()
        if key.startswith(_KEPT_PREFIXES) and isinstance(value, int | float)
    }
    return {"seconds": kept.get("timing_s/step", 0.0), **kept}


def _drop_later_steps(path: Path, finished_steps: int) -> None:
    """Removes the records of steps that will be run again, and a line that a killed process left unfinished."""
    kept: Iterable[str] = []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    kept = [line for line in lines if json.loads(line)["step"] <= finished_steps]
    path.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
