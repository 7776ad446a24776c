"""veRL's checkpoints on disk: which are complete, which are kept, and how much room they need.

veRL writes straight into global_step_N: for each rank one file of weights, of optimiser and of scheduler, and a copy of
the actor's weights in Hugging Face layout; then the same of the critic (PPO), data.pt (the position in the data), and
last latest_checkpointed_iteration.txt, from which it resumes. A job that is killed in between leaves a folder that is
not complete, or an empty marker, with which veRL cannot start; a disk may change what it once held. So before a job
starts, what is not complete is removed, the checkpoint to go on from is read against its checksums, and the marker is
written anew.
"""

from __future__ import annotations

import json
import shutil
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from parallelsearch.files import write_text
from parallelsearch.machine.preflight import disk_available, require_space

MARKER = "latest_checkpointed_iteration.txt"
READERS = 8  # files of a checkpoint that are read at once
COPIES = 3  # on disk at once, at most: the newest, one before it (the last good one), and the one being written
# Bytes of one parameter: weights in float32, Adam's two moments, and of the actor a copy in Hugging Face layout.
ACTOR_BYTES, CRITIC_BYTES, POLICY_BYTES = 4 + 8 + 4, 4 + 8, 4


class Checkpoints:
    """The checkpoints of one run. `ranks`: processes of the job; `critic`: whether it trains one.

    `supervised`: as veRL's SFT trainer lays them out, the policy in the step's own folder, the data's position by rank.
    """

    def __init__(self, folder: Path, ranks: int, critic: bool = False, supervised: bool = False) -> None:
        self.folder = folder
        self._ranks = ranks
        self._roles = (".",) if supervised else ("actor", "critic") if critic else ("actor",)
        self._data = [f"data_{rank}.pt" for rank in range(ranks)] if supervised else ["data.pt"]

    def path(self, step: int) -> Path:
        """The folder of the checkpoint of a step."""
        return self.folder / f"global_step_{step}"

    def policy(self, step: int) -> Path:
        """The folder of that checkpoint's policy: its shards and huggingface/."""
        return self.path(step) / self._roles[0]

    @property
    def marked(self) -> int:
        """The step that veRL marked last; 0 where there is no (readable) marker."""
        marker = self.folder / MARKER
        text = marker.read_text().strip() if marker.exists() else ""
        return int(text) if text.isdecimal() else 0

    @property
    def complete(self) -> list[int]:
        """Steps of all complete checkpoints, in order. Every file is there and ends as its format demands."""
        return [step for step in self._steps() if self._flaw(self.path(step)) is None]

    @property
    def latest(self) -> int:
        """The step of the newest complete checkpoint; 0 when there is none."""
        return max(self.complete, default=0)

    def clean(self, before: int | None = None) -> int:
        """Removes what is not complete, and what is of step `before` or later; the marker then names the newest left.

        That one is read against its checksums; where it is damaged it goes too. What is removed for a flaw is printed.
        Returns the step, or 0. To be called while no job writes.
        """
        flaws = {step: flaw for step in self._steps() if (flaw := self._flaw(self.path(step)))}
        kept = [step for step in self._steps() if step not in flaws and (before is None or step < before)]
        while kept and (damaged := damaged_file(self._tensor_files(self.path(kept[-1])))):
            flaws[kept.pop()] = f"{damaged} is damaged"
        self._keep_only(kept)  # first: on a full disk there is no room for what is printed
        for step, flaw in flaws.items():
            print(f"{self.path(step)} is not gone on from and removed: {flaw}", flush=True)
        if kept:
            write_text(self.folder / MARKER, str(kept[-1]))
        else:
            (self.folder / MARKER).unlink(missing_ok=True)
        return max(kept, default=0)

    def prune(self, good_before: int) -> None:
        """While a job runs: of the checkpoints up to the marked one keeps that and the newest before `good_before`.

        Where these are one, or there is no such one, the one before the marked is kept: a disk may damage the newest.
        """
        marked = self.marked
        older = [step for step in self._steps() if step < marked]
        good = [step for step in older if step < good_before] if good_before <= marked else []
        kept = [marked, *(good or older)[-1:]]
        self._keep_only([*kept, *(step for step in self._steps() if step > marked)])

    def bytes_of_one(self, policy: Path) -> int:
        """Bytes of a checkpoint of a job that starts from `policy`."""
        return parameter_count(policy) * (ACTOR_BYTES + (CRITIC_BYTES if "critic" in self._roles else 0))

    def require_room(self, policy: Path) -> None:
        """ResourceError unless the disk has room for what a job that starts from `policy` still has to write."""
        parameters, one = parameter_count(policy), self.bytes_of_one(policy)
        there = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        need = COPIES * one + parameters * POLICY_BYTES - there
        require_space(
            need,
            disk_available(self.folder),
            f"Training a policy of {parameters:,} parameters (up to {COPIES} checkpoints and the exported policy)",
            "free some, or put the study's results on a larger disk",
        )

    def _steps(self) -> list[int]:
        names = (path.name.removeprefix("global_step_") for path in self.folder.glob("global_step_*"))
        return sorted(int(name) for name in names if name.isdecimal())

    def _keep_only(self, steps: list[int]) -> None:
        for step in self._steps():
            if step not in steps:
                shutil.rmtree(self.path(step))

    def _tensor_files(self, folder: Path) -> list[Path]:
        shards = [
            folder / role / f"{part}_world_size_{self._ranks}_rank_{rank}.pt"
            for role in self._roles
            for part in ("model", "optim", "extra_state")
            for rank in range(self._ranks)
        ]
        return [*shards, *(folder / name for name in self._data)]

    def _flaw(self, folder: Path) -> str | None:
        """The first file that was not written to its end, in words; None where the checkpoint is complete."""
        for path in self._tensor_files(folder):
            if not path.exists():
                return f"{path.relative_to(folder)} is missing"
            if not zipfile.is_zipfile(path):
                return f"{path.relative_to(folder)} is cut off"
        policy = folder / self._roles[0] / "huggingface"
        return None if has_weights(policy) else f"{policy.relative_to(folder)} has no whole weights"


def damaged_file(paths: list[Path]) -> Path | None:
    """The first of torch's files whose content is not what its checksums say; each is read once."""
    with ThreadPoolExecutor(READERS) as readers:
        whole = list(readers.map(_keeps_its_checksums, paths))
    return next((path for path, fine in zip(paths, whole, strict=True) if not fine), None)


def _keeps_its_checksums(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError):
        return False  # the damage is in what surrounds the tensors


def has_weights(folder: Path) -> bool:
    """True for a folder in Hugging Face layout whose every weight file is there and as long as its header says."""
    from safetensors import SafetensorError, safe_open

    listing = folder / "model.safetensors.index.json"
    names = {"model.safetensors"}
    try:
        if listing.exists():
            names = set(json.loads(listing.read_text())["weight_map"].values())
        for name in names:
            with safe_open(folder / name, framework="pt"):
                pass
        return (folder / "config.json").stat().st_size > 0 and bool(names)
    except (OSError, SafetensorError, json.JSONDecodeError):
        return False


def parameter_count(policy: Path) -> int:
    """Numbers in the weight files of a model's folder."""
    from math import prod

    from safetensors import safe_open

    total = 0
    for path in policy.glob("*.safetensors"):
        with safe_open(path, framework="pt") as weights:
            total += sum(prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    return total
