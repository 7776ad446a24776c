"""An index folder -> the retriever that searches it. Server, evaluation and training open indexes only here."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from parallelsearch.config import INDEX_KINDS
from parallelsearch.errors import DataError
from parallelsearch.files import MANIFEST, read_json
from parallelsearch.retrieval.encoding.embeddings import require_same
from parallelsearch.retrieval.indexes.parts import combined_sha256, open_corpus, part_path
from parallelsearch.retrieval.joined_searches import JoinedSearches
from parallelsearch.retrieval.retriever import LocalRetriever

FUSE_AGAIN = "rerun `parallelsearch index fuse`"
RERANK_AGAIN = "rerun `parallelsearch index rerank`"


def open_retriever(index_dir: Path, device: str | None = None) -> JoinedSearches:
    """The retriever of the kind that the folder's manifest names, with everything it needs opened and checked.

    Raises DataError for a missing or broken part, MismatchError for parts that do not belong together.
    """
    index_dir = Path(index_dir)
    manifest = read_json(index_dir / MANIFEST)
    match kind := manifest.get("kind"):
        case "bm25":
            from parallelsearch.retrieval.bm25_retriever import Bm25Retriever
            from parallelsearch.retrieval.indexes.bm25 import StoredBm25

            return Bm25Retriever(StoredBm25(index_dir))
        case "hybrid":
            return _hybrid(index_dir, manifest, device)
        case "reranked":
            return _reranked(index_dir, manifest, device)
        case _ if kind in get_args(INDEX_KINDS):
            return LocalRetriever.open(index_dir, device)
    known = ", ".join([*get_args(INDEX_KINDS), "bm25", "hybrid", "reranked"])
    raise DataError(f"{index_dir / MANIFEST} has kind '{kind}', which is no kind of index; known kinds: {known}.")


def _hybrid(index_dir: Path, manifest: dict[str, Any], device: str | None) -> JoinedSearches:
    from parallelsearch.retrieval.hybrid_retriever import HybridRetriever

    open_corpus(index_dir, manifest, FUSE_AGAIN)
    return HybridRetriever([_part(index_dir, part, device, FUSE_AGAIN) for part in manifest["parts"]], manifest)


def _reranked(index_dir: Path, manifest: dict[str, Any], device: str | None) -> JoinedSearches:
    from parallelsearch.retrieval.reranking.cross_encoder import CrossEncoder
    from parallelsearch.retrieval.reranking.reranked_retriever import RerankedRetriever

    open_corpus(index_dir, manifest, RERANK_AGAIN)
    first = _part(index_dir, manifest["index"], device, RERANK_AGAIN)
    recorded = manifest["reranker"]
    reranker = CrossEncoder.open(part_path(index_dir, recorded), device)
    found = combined_sha256(reranker.manifest["files"])
    require_same("reranker sha256", index_dir, recorded["sha256"], part_path(index_dir, recorded), found, RERANK_AGAIN)
    return RerankedRetriever(first, reranker, manifest)


def _part(index_dir: Path, part: dict[str, Any], device: str | None, next_step: str) -> JoinedSearches:
    folder = part_path(index_dir, part)
    found = read_json(folder / MANIFEST)
    require_same("index sha256", index_dir, part["sha256"], folder, found["sha256"], next_step)
    return open_retriever(folder, device)
