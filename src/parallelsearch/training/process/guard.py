"""The watch over a training job: it looks at each step's metrics as they come and says when the job has to end.

Two kinds of end. `diverged`: a loss, KL, entropy or gradient norm that is not a finite number, or a figure that has
collapsed against the run's own best; the same settings and seed would most likely end there again. `infrastructure`:
too many of a step's episodes were lost to the retriever or the engine; the run can go on once that is repaired.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from parallelsearch.config import TrainingConfig

_WATCHED = ("loss", "kl", "entropy", "grad_norm")  # parts of the names of veRL's figures that have to be finite
SMALLEST_LOSS = 0.1  # of a mean reward or share: less than this is noise of a small batch


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a job has to end. `step` is the newest step seen, `first_bad_step` where the trouble began."""

    kind: Literal["diverged", "infrastructure"]
    reason: str
    step: int
    first_bad_step: int
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class _Figure:
    """A figure that is best when it is large; a run may lose the share `loss` of its best, and always `least`."""

    key: str
    name: str
    loss: float
    least: float

    def floor(self, best: float) -> float:
        return best - max(self.loss * abs(best), self.least)


class Guard:
    """Sees the rows of metrics.jsonl in order. `earlier`: those of the steps before a job goes on."""

    def __init__(self, training: TrainingConfig, earlier: Iterable[Mapping[str, Any]] = ()) -> None:
        self._config = training.guard
        self._expected = training.batch_size * training.rollouts_per_prompt
        self._figures = (
            _Figure("reward_mean", "the mean reward", self._config.reward, SMALLEST_LOSS),
            _Figure("well_formed", "the share of well-formed episodes", self._config.well_formed, SMALLEST_LOSS),
            _Figure("entropy", "the entropy", self._config.entropy, 0.0),
        )
        self._rows: list[Mapping[str, Any]] = []
        self._best: dict[str, float] = {}  # best smoothed value before the newest step
        for row in earlier:
            self.see(row)

    def see(self, row: Mapping[str, Any]) -> Verdict | None:
        """Takes in the next step's row; a Verdict when the job has to end there."""
        if verdict := self.lost_episodes(row):
            return verdict
        if not self._config.enabled:
            return None
        if unfit := {key: float(row[key]) for key in row if _has_to_be_finite(key) and not math.isfinite(row[key])}:
            step, names = int(row["step"]), ", ".join(f"{key} is {value}" for key, value in sorted(unfit.items()))
            return Verdict("diverged", f"{names} at step {step}", step, step, unfit)
        self._rows.append(row)
        collapsed = [verdict for figure in self._figures if (verdict := self._collapse(figure))]
        collapsed += [verdict for verdict in (self._gibberish(),) if verdict]
        return collapsed[0] if collapsed else None

    def lost_episodes(self, row: Mapping[str, Any], finished: bool = True) -> Verdict | None:
        """A Verdict when too many of the step's episodes failed or, in a finished step, left no record at all."""
        if "episodes" not in row:
            return None
        expected = max(self._expected, int(row["episodes"]))
        lost = int(row["failures"]) + (expected - int(row["episodes"]) if finished else 0)
        if lost <= self._config.failures * expected:
            return None
        step = int(row["step"])
        reason = (
            f"{lost} of the {expected} episodes of step {step} were lost to failures of the retriever or the generation"
            f" engine (training.guard.failures allows {self._config.failures:.0%})"
        )
        return Verdict("infrastructure", reason, step, step, {"lost": lost, "episodes": expected})

    @property
    def good_before(self) -> int:
        """The first step of the last window that is under suspicion; the one after the newest where none is."""
        recent = self._rows[-self._config.window :]
        suspects = [int(row["step"]) for row in recent if self._is_suspect(row)]
        newest = int(self._rows[-1]["step"]) if self._rows else 0
        return suspects[0] if suspects else newest + 1

    def _is_suspect(self, row: Mapping[str, Any]) -> bool:
        known = [figure for figure in self._figures if figure.key in self._best and figure.key in row]
        low = any(row[figure.key] < figure.floor(self._best[figure.key]) for figure in known)
        return low or ("gibberish" in self._best and row.get("gibberish", 0.0) > self._config.gibberish)

    def _collapse(self, figure: _Figure) -> Verdict | None:
        recent = self._rows[-self._config.window :]
        values = [float(row[figure.key]) for row in recent if figure.key in row]
        if len(values) < self._config.window:
            return None
        mean, best = fmean(values), self._best.get(figure.key)
        if best is None or mean >= figure.floor(best):
            self._best[figure.key] = mean if best is None else max(best, mean)
            return None
        first_bad = next(int(row["step"]) for row in recent if row[figure.key] < figure.floor(best))
        step = int(recent[-1]["step"])
        reason = (
            f"{figure.name} has collapsed: {mean:.4g} on average over steps {int(recent[0]['step'])} to {step}, after"
            f" {best:.4g} at its best"
        )
        return Verdict("diverged", reason, step, first_bad, {figure.key: mean, f"best {figure.key}": best})

    def _gibberish(self) -> Verdict | None:
        recent, limit = self._rows[-self._config.window :], self._config.gibberish
        values = [float(row["gibberish"]) for row in recent if "gibberish" in row]
        if len(values) < self._config.window:
            return None
        mean, best = fmean(values), self._best.get("gibberish", math.inf)
        self._best["gibberish"] = min(best, mean)
        if mean <= limit or best >= limit / 2:
            return None
        first_bad = next(int(row["step"]) for row in recent if row["gibberish"] > limit)
        step = int(recent[-1]["step"])
        reason = f"{mean:.0%} of the episodes of steps {int(recent[0]['step'])} to {step} hold no tag at all"
        return Verdict("diverged", reason, step, first_bad, {"gibberish": mean, "best gibberish": best})


def _has_to_be_finite(key: str) -> bool:
    last = key.rpartition("/")[2]
    of_loss = key.startswith(("actor/", "critic/")) and any(part in last for part in _WATCHED)
    return of_loss or key in ("reward_mean", "entropy")
