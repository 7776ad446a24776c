"""The folder of a run: metrics.jsonl while it goes on, config.yaml beside it, done.json last."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from parallelsearch.errors import DataError
from parallelsearch.files import read_json, write_text
from parallelsearch.machine.full_disk import naming_full_disk
from parallelsearch.model_folder import file_checksums, require_unchanged
from parallelsearch.runs.finished_run import record_finished, restore_finished

VERSIONED = ("verl", "torch", "transformers", "ray", "faiss-cpu", "parallelsearch")


class MetricsLog:
    """metrics.jsonl: one JSON object a step, flushed at once; steps after `keep_up_to` are cut off on opening."""

    def __init__(self, path: Path, keep_up_to: int = 0) -> None:
        self._path = path
        kept = [row for row in read_metrics(path, tolerant=True) if row["step"] <= keep_up_to] if path.exists() else []
        write_text(path, "".join(json.dumps(row) + "\n" for row in kept))

    def append(self, row: Mapping[str, Any]) -> None:
        with naming_full_disk(self._path), self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")


def read_metrics(path: Path, tolerant: bool = False) -> list[dict[str, Any]]:
    """Rows of metrics.jsonl; a broken line is a DataError with its number (`tolerant`: reading ends there)."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            if tolerant:
                break
            raise DataError(f"{path}, line {number} is not JSON; delete the run's folder and run it again.") from None
    return rows


def config_sha256(config: Mapping[str, Any]) -> str:
    """SHA-256 of a configuration in canonical JSON."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def start_run(folder: Path, config: Mapping[str, Any]) -> None:
    """Opens the folder of a run and writes config.yaml.

    An unfinished run with the same configuration is gone on with. A run with another configuration is set aside
    (renamed with its configuration's hash), never overwritten and never resumed; what differs is printed.
    """
    path = folder / "config.yaml"
    wanted = json.loads(json.dumps(config))
    if path.exists() and (before := yaml.safe_load(path.read_text(encoding="utf-8"))) != wanted:
        aside = folder.rename(_free_name(folder, config_sha256(before)[:8]))
        print(f"{folder} starts anew, what was there is now {aside}: {_differences(before, wanted)}", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, yaml.safe_dump(wanted, sort_keys=False, allow_unicode=True))


def _differences(before: Any, wanted: Any, key: str = "") -> str:
    """'training.steps was 6 and is 8, seed was 0 and is 1': what two configurations differ in."""
    if not (isinstance(before, dict) and isinstance(wanted, dict)):
        return f"{key} was {before} and is {wanted}"
    names = [name for name in {**before, **wanted} if before.get(name) != wanted.get(name)]
    return ", ".join(
        _differences(before.get(name), wanted.get(name), f"{key}.{name}" if key else str(name)) for name in names
    )


def _free_name(folder: Path, suffix: str) -> Path:
    names = (folder.with_name(f"{folder.name}.superseded-{suffix}{n or ''}") for n in range(10_000))
    return next(name for name in names if not name.exists())


def finish_run(folder: Path, config: Mapping[str, Any], inputs: Mapping[str, str], **facts: Any) -> None:
    """Writes done.json, the mark of a complete run, with the checksums of its policy's files."""
    done = {**facts, "policy": "policy", "config_sha256": config_sha256(config), "inputs": dict(inputs)}
    checksums = file_checksums(folder / "policy")
    record_finished(folder, {**done, "versions": library_versions(), "policy_files": checksums})


def is_finished(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether the run that `start_run` opened is complete already; then its done.json is there (see finished_run)."""
    return restore_finished(folder, config_sha256(config), library_versions())


def library_versions() -> dict[str, str]:
    """Of Python and of what decides how a run goes."""
    return {"python": platform.python_version()} | {package: metadata.version(package) for package in VERSIONED}


def policy_folder(run: Path) -> Path:
    """The policy of a complete run; a run without done.json, or without its policy as it was written, is refused."""
    done = read_json(run / "done.json")
    folder = run / done["policy"]
    if not (folder / "config.json").exists():
        raise DataError(f"{run / 'done.json'} names the policy {folder}, which is missing; train the arm again.")
    require_unchanged(folder, done.get("policy_files", {}), run / "done.json", "train the arm again")
    return folder
