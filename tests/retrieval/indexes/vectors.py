"""Vectors that lie as passages do, around topics, in an embeddings folder without corpus and encoder."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from parallelsearch.files import MANIFEST, write_json
from parallelsearch.retrieval.encoding.embeddings import DTYPE, Embeddings, shard_path


def topical(rows: int, dim: int, topics: int = 40, seed: int = 7) -> np.ndarray:
    """float16 [rows, dim]: unit vectors around centres, hard enough that a careless search loses neighbours."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(topics, dim)).astype(np.float32)
    vectors = centres[random.integers(0, topics, rows)] + 0.5 * random.normal(size=(rows, dim)).astype(np.float32)
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(DTYPE)


def embeddings_of(vectors: np.ndarray, folder: Path, shards: int = 3) -> Embeddings:
    """The vectors in shards of nearly equal size."""
    entries, ends = [], [len(vectors) * number // shards for number in range(shards + 1)]
    for shard, (start, stop) in enumerate(pairwise(ends)):
        np.save(shard_path(folder, shard, shards), vectors[start:stop])
        entries.append({"file": shard_path(folder, shard, shards).name, "rows": [start, stop]})
    manifest = {"rows": len(vectors), "dim": vectors.shape[1], "encoder_path": "../none", "shards": entries}
    write_json(folder / MANIFEST, manifest)
    return Embeddings(folder)


def brute_force(vectors: np.ndarray, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and ids [queries, k] in double precision, without FAISS."""
    scores = queries.astype(np.float64) @ vectors.astype(np.float64).T
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, ids, axis=1), ids
