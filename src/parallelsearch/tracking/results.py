"""What the collector finds in a results folder: one record for each arm and seed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parallelsearch.config import WARM_START
from parallelsearch.errors import DataError
from parallelsearch.evaluation.episodes import read_provenance
from parallelsearch.evaluation.training_runs import TrainingRun, read_run
from parallelsearch.files import sha256


@dataclass(frozen=True)
class ArmResult:
    """The training run (if there is one) and the episodes files of one arm and seed."""

    arm: str
    seed: int
    training: TrainingRun | None = None
    episodes: list[Path] = field(default_factory=list)

    @property
    def config(self) -> dict[str, Any]:
        """The merged config of the training, or what the evaluation recorded."""
        if self.training is not None:
            return self.training.config
        return read_provenance(self.episodes[0]).config

    @property
    def config_sha256(self) -> str:
        text = json.dumps(self.config, sort_keys=True, ensure_ascii=False, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def key(self) -> str:
        """What makes a run the same run in every collection: arm, seed and config."""
        return f"{self.arm}/seed{self.seed}/{self.config_sha256[:16]}"

    @property
    def complete(self) -> bool:
        """A trained arm is complete when its training is done and it has been evaluated."""
        return bool(self.episodes) and (self.training is None or self.training.complete)

    @property
    def files(self) -> list[Path]:
        """Every file the record is made from."""
        own = [] if self.training is None else [
            self.training.folder / name for name in ("config.yaml", "metrics.jsonl", "done.json")
        ]  # fmt: skip
        return [path for path in (*own, *self.episodes) if path.is_file()]

    def content(self) -> str:
        """Checksum of all files; equal content needs no second collection."""
        return hashlib.sha256("".join(sha256(path) for path in self.files).encode()).hexdigest()


def find(root: Path) -> list[ArmResult]:
    """The records of a results folder, by arm and seed. Reads train/, warm_start/ and eval/, nothing else."""
    root = Path(root)
    training: dict[tuple[str, int], TrainingRun] = {}
    for folder in sorted(root.glob("train/*/seed*")):
        if (folder / "config.yaml").is_file():
            run = read_run(folder)
            training[run.arm, run.seed] = run
    for folder in sorted(root.glob("warm_start/seed*")):
        if (folder / "config.yaml").is_file():
            run = read_run(folder)
            training[WARM_START, run.seed] = run
    episodes: dict[tuple[str, int], list[Path]] = {}
    for path in sorted(root.glob("eval/*/seed*/*/episodes.parquet")):
        arm, seed = path.parts[-4], path.parts[-3].removeprefix("seed")
        if not seed.isdigit():
            raise DataError(f"{path}: '{path.parts[-3]}' is not seed followed by a number; move the folder away.")
        episodes.setdefault((arm, int(seed)), []).append(path)
    keys = sorted({*training, *episodes})
    if not keys:
        raise DataError(f"{root} holds no training run and no episodes; run the study first.")
    return [ArmResult(arm, seed, training.get((arm, seed)), episodes.get((arm, seed), [])) for arm, seed in keys]
