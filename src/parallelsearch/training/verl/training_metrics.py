"""Training curves: veRL's own metrics of a step joined with the records of its episodes."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from parallelsearch.files import write_text
from parallelsearch.records import StopReason, Structure
from parallelsearch.rewards.breakdown import EXTRA
from parallelsearch.runs.run_folder import MetricsLog, read_metrics

_BY_STRUCTURE = (Structure.PARALLEL, Structure.SEQUENTIAL, Structure.MIXED, Structure.SINGLE)
_KEPT_PREFIXES = ("actor/", "critic/", "training/", "timing_s/", "perf/", "response_length/", "rollout_corr/")


class TrainingMetrics:
    """metrics.jsonl of a run that goes on after `finished_steps`.

    A finished step whose row is missing, since the job was killed between its checkpoint and its row, gets it from
    veRL's log; where veRL had not logged it either, from its episodes.
    """

    def __init__(self, folder: Path, finished_steps: int) -> None:
        self.folder = folder
        self.first_step = finished_steps + 1
        self._records = folder / "records"
        self._log = MetricsLog(folder / "metrics.jsonl", keep_up_to=finished_steps)
        self.verl_log = folder / "data" / f"verl-metrics-from-{self.first_step}.jsonl"
        self.verl_log.unlink(missing_ok=True)
        for path in self._records.glob("*.jsonl"):
            _drop_later_steps(path, finished_steps)
        self.earlier = self._all_rows(finished_steps)  # of the steps before
        self.last: dict[str, Any] = self.earlier[-1] if self.earlier else {}
        self._read = 0

    def collect(self) -> Iterator[dict[str, Any]]:
        """Writes and yields the rows of the steps veRL has logged since the last call."""
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
            yield self.last

    def unlogged(self) -> dict[str, Any] | None:
        """Means over the episodes of the step after the last logged one; None where it has none."""
        step = max(int(self.last.get("step", 0)) + 1, self.first_step)
        records = self._episodes(step)
        return {"step": step, **episode_means(records)} if records else None

    def figures(self, step: int, data: dict[str, Any]) -> dict[str, float]:
        """The figures of a step, `data` being what veRL logged of it."""
        return {**episode_means(self._episodes(step)), **_verl_means(data)}

    def _all_rows(self, finished_steps: int) -> list[dict[str, Any]]:
        """The rows of all finished steps; metrics.jsonl is written anew where one was missing."""
        path = self.folder / "metrics.jsonl"
        rows = {int(row["step"]): row for row in read_metrics(path)}
        missing = [step for step in range(1, finished_steps + 1) if step not in rows]
        if not missing:
            return list(rows.values())
        logs = sorted(path.parent.glob("data/verl-metrics-from-*.jsonl"), key=lambda log: log.stat().st_mtime_ns)
        logged = {int(row["step"]): row["data"] for log in logs for row in _whole_records(log)}
        for step in missing:
            if step in logged or self._episodes(step):
                rows[step] = {"step": step, **self.figures(step, logged.get(step, {}))}
        complete = [rows[step] for step in sorted(rows)]
        write_text(path, "".join(json.dumps(row) + "\n" for row in complete))
        return complete

    def _episodes(self, step: int) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for path in sorted(self._records.glob("*.jsonl")):
            for record in _whole_records(path):
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
                f"gibberish{suffix}": fmean(not record.get("tagged", True) for record in group),
            }
    for name in EXTRA:
        if values := [record["reward"][name] for record in counted if name in record["reward"]]:
            means[f"reward_{name}"] = fmean(values)
    sampled = [record for record in counted if "log_prob" in record]
    if tokens := sum(record["model_tokens"] for record in sampled):
        # Of sampled tokens: the mean of -log p is an unbiased estimate of the entropy at the sampling temperature.
        means["entropy"] = -sum(record["log_prob"] for record in sampled) / tokens
    return means


def _verl_means(data: dict[str, Any]) -> dict[str, float]:
    kept = {
        key: math.nan if value is None else float(value)  # its log says null for what is not a finite number
        for key, value in data.items()
        if key.startswith(_KEPT_PREFIXES) and (value is None or isinstance(value, int | float))
    }
    return {"seconds": kept.get("timing_s/step", 0.0), **kept}


def _drop_later_steps(path: Path, finished_steps: int) -> None:
    """Removes the records of steps that will be run again, and a line that a killed process left unfinished."""
    kept = [record for record in _whole_records(path) if record["step"] <= finished_steps]
    write_text(path, "".join(json.dumps(record) + "\n" for record in kept))


def _whole_records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file to which a process writes, or wrote until it was killed: its last line may be a part."""
    for line in path.read_bytes().split(b"\n")[:-1]:
        yield json.loads(line)
