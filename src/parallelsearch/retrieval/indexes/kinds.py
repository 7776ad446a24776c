"""The kinds of FAISS index and their parameters. All of them rank by inner product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from parallelsearch.config import IndexConfig
from parallelsearch.errors import ConfigError

if TYPE_CHECKING:
    from parallelsearch.retrieval.encoding.embeddings import Embeddings

TRAINING_VECTORS_PER_LIST = 64
TRAINING_SEED = 0

# Build and search parameters of each kind with their defaults; nlist 0 means 4 * sqrt(rows), as FAISS advises.
DEFAULTS: dict[str, dict[str, int]] = {
    "flat": {},
    "flat_fp16": {},
    "ivf_flat": {"nlist": 0, "nprobe": 16},
    "hnsw": {"M": 32, "efConstruction": 200, "efSearch": 128},
}
EXACT_KINDS = ("flat", "flat_fp16")


@dataclass(frozen=True, slots=True)
class BuiltIndex:
    """A filled FAISS index and the parameters it was built with (defaults filled in)."""

    index: Any
    parameters: dict[str, int]


def complete_parameters(config: IndexConfig, rows: int) -> dict[str, int]:
    """The parameters of the kind with defaults filled in; unknown or impossible ones are a ConfigError."""
    known = DEFAULTS[config.kind]
    for name, value in config.parameters.items():
        if name not in known:
            allowed = ", ".join(known) or "none"
            raise ConfigError(f"index.parameters has '{name}', unknown to kind '{config.kind}'; allowed: {allowed}.")
        if value < (0 if name == "nlist" else 1):
            raise ConfigError(f"index.parameters.{name} is {value}; give a positive number.")
    parameters = {**known, **config.parameters}
    if config.kind == "ivf_flat":
        parameters["nlist"] = min(parameters["nlist"] or max(int(4 * rows**0.5), 1), rows)
        parameters["nprobe"] = min(parameters["nprobe"], parameters["nlist"])
    return parameters


def build_index(config: IndexConfig, embeddings: Embeddings) -> BuiltIndex:
    """Builds and fills the index block by block; ids are row numbers of the corpus."""
    import faiss

    parameters = complete_parameters(config, len(embeddings))
    index = _empty_index(config.kind, embeddings, parameters)
    for block in embeddings.blocks():
        index.add(block)
    if config.kind == "ivf_flat":
        faiss.extract_index_ivf(index).make_direct_map()
    apply_search_parameters(index, config.kind, parameters)
    return BuiltIndex(index, parameters)


def apply_search_parameters(index: Any, kind: str, parameters: dict[str, int]) -> None:
    """Sets nprobe or efSearch: FAISS keeps them in the object, and its own defaults (1 and 16) lose many passages."""
    if kind == "ivf_flat":
        index.nprobe = parameters["nprobe"]
    if kind == "hnsw":
        index.hnsw.efSearch = parameters["efSearch"]


def _empty_index(kind: str, embeddings: Embeddings, parameters: dict[str, int]) -> Any:
    import faiss

    index: Any
    dim = embeddings.dim
    if kind == "flat":
        return faiss.IndexFlatIP(dim)
    if kind == "flat_fp16":
        return faiss.IndexScalarQuantizer(dim, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(dim, parameters["M"], faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = parameters["efConstruction"]
        return index
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, parameters["nlist"], faiss.METRIC_INNER_PRODUCT)
    index.cp.seed = TRAINING_SEED
    index.cp.min_points_per_centroid = 1
    index.train(_training_vectors(embeddings, parameters["nlist"]))
    return index


def _training_vectors(embeddings: Embeddings, lists: int) -> np.ndarray:
    wanted = min(len(embeddings), lists * TRAINING_VECTORS_PER_LIST)
    rows = np.random.default_rng(TRAINING_SEED).choice(len(embeddings), wanted, replace=False)
    return embeddings.take(np.sort(rows))


def exact_neighbours(embeddings: Embeddings, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and ids [len(queries), k] of the exact search over all embeddings, one block in memory at a time."""
    import faiss

    parts: list[tuple[np.ndarray, np.ndarray]] = []
    for first, block in _numbered(embeddings):
        scores, ids = faiss.knn(queries, block, min(k, len(block)), metric=faiss.METRIC_INNER_PRODUCT)
        parts.append((scores, ids + first))
    scores, ids = (np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
    order = np.lexsort((ids, -scores))[:, :k]
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(ids, order, axis=1)


def _numbered(embeddings: Embeddings) -> Iterator[tuple[int, np.ndarray]]:
    first = 0
    for block in embeddings.blocks():
        yield first, block
        first += len(block)
