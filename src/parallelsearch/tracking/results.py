"""What the collector finds in a results folder: one record for each arm and seed."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parallelsearch.config import WARM_START
from parallelsearch.config.names import is_dotted_name
from parallelsearch.errors import DataError
from parallelsearch.evaluation.episodes import read_provenance
from parallelsearch.files import sha256
from parallelsearch.plan.paths import PUBLISHED, UNLIMITED
from parallelsearch.runs.run_folder import config_sha256
from parallelsearch.runs.training_runs import TrainingRun, read_run

_SEED = re.compile(r"seed\d+")  # a run that was set aside has a longer name


@dataclass(frozen=True)
class ArmResult:
    """The training run (if there is one) and the episodes files of one arm and seed."""

    root: Path  # the results folder
    arm: str
    seed: int
    training: TrainingRun | None = None
    episodes: list[Path] = field(default_factory=list)
    published_episodes: list[Path] = field(default_factory=list)  # answered by the published protocol
    unlimited_episodes: list[Path] = field(default_factory=list)  # answered without the study's limits

    @property
    def config(self) -> dict[str, Any]:
        """The merged config of the training, or what the evaluation recorded."""
        if self.training is not None:
            return self.training.config
        return read_provenance(self.episodes[0]).config

    @property
    def config_sha256(self) -> str:
        return config_sha256(self.config)

    @property
    def key(self) -> str:
        """What makes a run the same run in every collection: arm, seed and config."""
        return f"{self.arm}/seed{self.seed}/{self.config_sha256[:16]}"

    @property
    def complete(self) -> bool:
        """A trained arm is complete when its training is done and it has been evaluated."""
        return bool(self.episodes) and (self.training is None or self.training.complete)

    @property
    def failure(self) -> str:
        """Why the training was ended early; '' where it was not."""
        return str(self.training.failed.get("reason", "")) if self.training is not None else ""

    @property
    def files(self) -> list[Path]:
        """Every file the record is made from."""
        own = [] if self.training is None else [
            self.training.folder / name for name in ("config.yaml", "metrics.jsonl", "done.json", "failed.json")
        ]  # fmt: skip
        return [
            path
            for path in (*own, *self.episodes, *self.published_episodes, *self.unlimited_episodes)
            if path.is_file()
        ]

    def content(self) -> str:
        """Checksum of all files; equal content needs no second collection."""
        return hashlib.sha256("".join(sha256(path) for path in self.files).encode()).hexdigest()


def find(root: Path) -> list[ArmResult]:
    """The records of a results folder, by arm and seed. Reads train/, warm_start/ and eval/, nothing else."""
    root = Path(root)
    training: dict[tuple[str, int], TrainingRun] = {}
    for folder in _seed_folders(root, "train/*/*") + _seed_folders(root, "eval/*/*"):
        if not is_dotted_name(folder.parent.name):
            raise DataError(
                f"{folder.parent} is no folder of an arm: its name has other characters than letters, digits and"
                " _ + - . ; rename it, or move it out of the results."
            )
    for folder in _seed_folders(root, "train/*/*") + _seed_folders(root, "warm_start/*"):
        if (folder / "config.yaml").is_file():
            run = read_run(folder)
            arm = WARM_START if folder.parent.name == "warm_start" else run.arm
            training[arm, run.seed] = run
    episodes: dict[tuple[str, int], list[Path]] = {}
    published: dict[tuple[str, int], list[Path]] = {}
    unlimited: dict[tuple[str, int], list[Path]] = {}
    for folder in _seed_folders(root, "eval/*/*"):
        for path in sorted(folder.glob("*/episodes.parquet")):
            name = path.parent.name
            files = published if name.endswith(PUBLISHED) else unlimited if name.endswith(UNLIMITED) else episodes
            files.setdefault((folder.parent.name, int(folder.name.removeprefix("seed"))), []).append(path)
    keys = sorted({*training, *episodes})
    if not keys:
        raise DataError(f"{root} holds no training run and no episodes; run the study first.")
    files_of = episodes, published, unlimited
    return [ArmResult(root, *key, training.get(key), *(files.get(key, []) for files in files_of)) for key in keys]


def _seed_folders(root: Path, pattern: str) -> list[Path]:
    return [folder for folder in sorted(root.glob(pattern)) if _SEED.fullmatch(folder.name)]
