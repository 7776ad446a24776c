"""finished.json: what a complete run was made with, so that its done.json can be put back.

done.json is Snakemake's: it deletes it where a job's end was not seen (a controller that was killed, a job that was
ended in its last second), and before a job runs again. The run itself is complete all the same, and is not made a
second time with equal configuration, inputs, code and libraries. To make it a second time, delete its folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import parallelsearch
from parallelsearch.files import read_json, write_json
from parallelsearch.model_folder import file_checksums

FINISHED = "finished.json"
DONE = "done.json"


def record_finished(run: Path, done: Mapping[str, Any]) -> None:
    """Writes finished.json and then done.json, the mark of a complete run."""
    write_json(run / FINISHED, {"done": done, "code": code_sha256()})
    write_json(run / DONE, done)


def restore_finished(run: Path, config_sha256: str, versions: Mapping[str, str]) -> bool:
    """Puts done.json back where the run is complete and was made with these; else removes both marks."""
    if not (run / FINISHED).exists():
        return False
    finished = read_json(run / FINISHED)
    done = finished["done"]
    equal = (done["config_sha256"], done["versions"], finished["code"]) == (config_sha256, versions, code_sha256())
    if equal and done["policy_files"] == file_checksums(run / done["policy"]):
        write_json(run / DONE, done)
        return True
    (run / DONE).unlink(missing_ok=True)
    (run / FINISHED).unlink()
    return False


def code_sha256() -> str:
    """One SHA-256 over this package's Python files and their names."""
    root = Path(parallelsearch.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()
