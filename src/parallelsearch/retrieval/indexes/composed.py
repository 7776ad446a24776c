"""Manifests of indexes that are made of other indexes: fused, or followed by a reranker. They hold no data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parallelsearch.config import HybridConfig
from parallelsearch.corpus.passages import Corpus
from parallelsearch.files import MANIFEST, read_json, write_json
from parallelsearch.retrieval.encoding.embeddings import relative_to, require_same
from parallelsearch.retrieval.indexes.parts import combined_sha256, corpus_part, index_part, part_path

FUSE_AGAIN = "build both indexes from one corpus and rerun `parallelsearch index fuse`"


def write_hybrid(index_dirs: Sequence[Path], out_dir: Path, config: HybridConfig) -> dict[str, Any]:
    """Writes the manifest of a hybrid index over `index_dirs`; MismatchError unless they belong to one corpus."""
    folders = [Path(folder) for folder in index_dirs]
    manifests = [read_json(folder / MANIFEST) for folder in folders]
    for what in ("sha256", "rows"):
        for folder, manifest in zip(folders[1:], manifests[1:], strict=True):
            left, right = manifests[0]["corpus"][what], manifest["corpus"][what]
            require_same(f"corpus {what}", folders[0], left, folder, right, FUSE_AGAIN)
    parts = [index_part(folder, manifest, out_dir) for folder, manifest in zip(folders, manifests, strict=True)]
    fused = {"parts": parts, "candidates": config.candidates, "k": config.k}
    return _write("hybrid", fused, _corpus_of(folders[0], manifests[0]), out_dir)


def write_reranked(index_dir: Path, reranker_dir: Path, out_dir: Path, candidates: int) -> dict[str, Any]:
    """Writes the manifest of an index whose first `candidates` hits a cross-encoder puts in a new order."""
    index_dir, reranker_dir = Path(index_dir), Path(reranker_dir)
    first, reranker = read_json(index_dir / MANIFEST), read_json(reranker_dir / MANIFEST)
    reranked = {
        "index": index_part(index_dir, first, out_dir),
        "reranker": {
            "path": relative_to(reranker_dir, out_dir),
            "name": reranker["name"],
            "sha256": combined_sha256(reranker["files"]),
        },
        "candidates": candidates,
    }
    return _write("reranked", reranked, _corpus_of(index_dir, first), out_dir)


def _corpus_of(index_dir: Path, manifest: dict[str, Any]) -> Corpus:
    return Corpus(part_path(index_dir, manifest["corpus"]))


def _write(kind: str, made_of: dict[str, Any], corpus: Corpus, out_dir: Path) -> dict[str, Any]:
    own = {"ntotal": len(corpus), "corpus": corpus_part(corpus, out_dir)}
    manifest = {"kind": kind, **made_of, **own, "sha256": combined_sha256(_without_paths(made_of))}
    write_json(Path(out_dir) / MANIFEST, manifest)
    return manifest


def _without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_paths(inner) for key, inner in value.items() if key != "path"}
    return [_without_paths(inner) for inner in value] if isinstance(value, list) else value
