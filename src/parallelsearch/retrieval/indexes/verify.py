"""Whether an index and everything it is made of are the files that were written: every checksum, whatever their size.

Opening an index checks the same, but of files above 512 MiB their size only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from parallelsearch.config import INDEX_KINDS
from parallelsearch.corpus.passages import PASSAGES
from parallelsearch.errors import DataError
from parallelsearch.files import MANIFEST, read_json, sha256
from parallelsearch.retrieval.encoding.embeddings import require_same
from parallelsearch.retrieval.encoding.export import exported_manifest
from parallelsearch.retrieval.indexes.bm25 import FOLDER
from parallelsearch.retrieval.indexes.parts import part_path
from parallelsearch.retrieval.indexes.stored_index import INDEX

NEXT_STEP = "it was changed or damaged: build it again, or copy it anew"


def verify_index(folder: Path) -> list[Path]:
    """The files that were checked: of the index, its parts, its corpus, its encoder and its reranker.

    Raises DataError for a missing file, MismatchError for a changed one.
    """
    folder = Path(folder)
    manifest = read_json(folder / MANIFEST)
    checked = [_same(*file, folder / MANIFEST) for file in _own_files(folder, manifest)]
    corpus = part_path(folder, manifest["corpus"])
    require_same(
        "corpus sha256", folder, manifest["corpus"]["sha256"], corpus, read_json(corpus / MANIFEST)["sha256"], NEXT_STEP
    )
    checked.append(_same(corpus / PASSAGES, manifest["corpus"]["sha256"], folder / MANIFEST))
    for name in ("encoder", "reranker"):
        if part := manifest.get(name):
            model = part_path(folder, part)
            exported = exported_manifest(model, NEXT_STEP)
            checked += [model / file for file in {**exported["files"], **exported.get("graph", {})}]
    for part in [*manifest.get("parts", []), *([manifest["index"]] if "index" in manifest else [])]:
        inner = part_path(folder, part)
        found = read_json(inner / MANIFEST)["sha256"]
        require_same("index sha256", folder, part["sha256"], inner, found, NEXT_STEP)
        checked += verify_index(inner)
    return list(dict.fromkeys(checked))


def _own_files(folder: Path, manifest: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    if manifest["kind"] in get_args(INDEX_KINDS):
        yield folder / INDEX, manifest["sha256"]
    for name, recorded in manifest.get("files", {}).items():
        yield folder / FOLDER / name, recorded["sha256"]


def _same(path: Path, expected: str, manifest: Path) -> Path:
    if not path.is_file():
        raise DataError(f"{path} is missing; {NEXT_STEP}.")
    require_same("sha256", path, sha256(path), manifest, expected, NEXT_STEP)
    return path
