"""A training run as its folder tells it: merged config, curves, and, once it is complete, what it was made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parallelsearch.config import SUPERVISED
from parallelsearch.config_files import read_yaml
from parallelsearch.errors import DataError
from parallelsearch.files import read_json
from parallelsearch.runs.run_folder import read_metrics


@dataclass(frozen=True)
class TrainingRun:
    """One arm and seed: `metrics` has one mapping a step, in order; `done` is {} until the run is complete.

    `failed` is what failed.json says of a run that was ended early, {} otherwise.
    """

    arm: str
    seed: int
    folder: Path
    config: dict[str, Any]
    metrics: list[dict[str, Any]]
    done: dict[str, Any]
    failed: dict[str, Any] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return bool(self.done)

    @property
    def has_reward(self) -> bool:
        """False for a run that learned from demonstrations."""
        return self.config.get("training", {}).get("algorithm") not in SUPERVISED

    def weight(self, name: str) -> float:
        """A weight of the reward section of the merged config."""
        try:
            return float(self.config["reward"][name])
        except (KeyError, TypeError, ValueError):
            raise DataError(
                f"{self.folder / 'config.yaml'} has no number reward.{name}; rerun the training of {self.arm}."
            ) from None


def read_run(folder: Path) -> TrainingRun:
    """The run in `folder` (train/{arm}/seed{n}). Without done.json it is incomplete; a half last line is left out."""
    folder = Path(folder)
    done, failed = (
        read_json(folder / name) if (folder / name).is_file() else {} for name in ("done.json", "failed.json")
    )
    arm, seed = done.get("arm", folder.parent.name), done.get("seed", folder.name.removeprefix("seed"))
    try:
        seed = int(seed)
    except ValueError:
        raise DataError(f"{folder} is no training run: its name is not seed followed by a number.") from None
    return TrainingRun(
        arm=arm,
        seed=seed,
        folder=folder,
        config=read_yaml(folder / "config.yaml"),
        metrics=_read_metrics(folder / "metrics.jsonl", complete=bool(done)),
        done=done,
        failed=failed,
    )


def _read_metrics(path: Path, complete: bool) -> list[dict[str, Any]]:
    if not path.is_file():
        if complete:
            raise DataError(f"{path} is missing although the run is complete; rerun the training.")
        return []
    return read_metrics(path, tolerant=not complete)
