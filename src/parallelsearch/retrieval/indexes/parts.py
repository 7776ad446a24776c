"""What an index folder is made of: its corpus, and the files and folders its manifest names; checked when opened."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from parallelsearch.corpus.passages import PASSAGES, Corpus
from parallelsearch.errors import DataError
from parallelsearch.files import MANIFEST, sha256
from parallelsearch.retrieval.encoding.embeddings import relative_to, require_same
from parallelsearch.retrieval.indexes.stored_index import WHOLE_FILE_CHECK_BYTES


def part_path(folder: Path, part: dict[str, Any]) -> Path:
    """The folder that a part of a manifest points to (`path`, relative to the manifest's own folder)."""
    return Path(os.path.normpath(Path(folder) / part["path"]))


def corpus_part(corpus: Corpus, folder: Path) -> dict[str, Any]:
    """How the manifest of an index in `folder` names its corpus."""
    return {"path": relative_to(corpus.folder, folder), "sha256": corpus.sha256, "rows": len(corpus)}


def index_part(index_dir: Path, manifest: dict[str, Any], folder: Path) -> dict[str, Any]:
    """How a manifest in `folder` names another index that it is made of."""
    return {"path": relative_to(index_dir, folder), "kind": manifest["kind"], "sha256": manifest["sha256"]}


def open_corpus(folder: Path, manifest: dict[str, Any], next_step: str) -> Corpus:
    """The corpus that the manifest of the index in `folder` names; MismatchError when it is another one by now."""
    recorded = manifest["corpus"]
    corpus = Corpus(part_path(folder, recorded))
    require_same("corpus sha256", folder, recorded["sha256"], corpus.folder, corpus.sha256, next_step)
    require_same("rows", folder, recorded["rows"], corpus.folder, len(corpus), next_step)
    check_file(corpus.folder / PASSAGES, corpus.manifest, corpus.folder / MANIFEST, "rebuild it")
    return corpus


def check_file(path: Path, recorded: dict[str, Any], manifest: Path, next_step: str) -> None:
    """MismatchError unless a file has the recorded `bytes` and (up to 512 MiB) the recorded `sha256`."""
    if not path.is_file():
        raise DataError(f"{path} is missing; {next_step}.")
    require_same("size in bytes", path, path.stat().st_size, manifest, recorded["bytes"], next_step)
    if recorded["bytes"] <= WHOLE_FILE_CHECK_BYTES:
        require_same("sha256", path, sha256(path), manifest, recorded["sha256"], next_step)


def combined_sha256(value: Any) -> str:
    """One checksum for an index that is more than one file: of the JSON of what it consists of."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
