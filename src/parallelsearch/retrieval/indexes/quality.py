"""What an index finds, measured against exact search over the same embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from parallelsearch.retrieval.encoding.embeddings import Embeddings

RECALL_AT = (3, 10)
SAMPLE = 200
SAMPLE_SEED = 0
SAME_PASSAGE_DISTANCE = 0.03  # vectors of one text in batches of different size are closer
SCORE_NOISE = 1e-5  # float32 inner products of equal vectors differ by less, whatever the batch


def measure(index: Any, embeddings: Embeddings) -> dict[str, Any]:
    """Quality on a seeded sample of passages used as queries.

    recall_at_3, recall_at_10: see `recall`. `recall` is the one at `recall_at` = 10, or at the number of passages where
    there are fewer. self_retrieval: share of passages whose first hit is themselves or a duplicate (the same vector up
    to rounding).
    """
    rows = np.random.default_rng(SAMPLE_SEED).choice(len(embeddings), min(SAMPLE, len(embeddings)), replace=False)
    queries = embeddings.take(rows)
    k = min(RECALL_AT[-1], len(embeddings))
    exact_scores, _ = exact_neighbours(embeddings, queries, k)
    _, ids = index.search(queries, k)
    first = embeddings.take(np.maximum(ids[:, 0], 0))
    same = (ids[:, 0] == rows) | (np.linalg.norm(first - queries, axis=1) < SAME_PASSAGE_DISTANCE)
    recalls = {f"recall_at_{at}": round(recall(embeddings, queries, exact_scores, ids, at), 4) for at in RECALL_AT}
    return {
        "recall_at": k,
        "recall": recalls[f"recall_at_{RECALL_AT[-1]}"],
        **recalls,
        "self_retrieval": round(float(same.mean()), 4),
        "sample": len(rows),
    }


def recall(embeddings: Embeddings, queries: np.ndarray, exact_scores: np.ndarray, ids: np.ndarray, at: int) -> float:
    """Share of the first `at` places filled by a passage that scores as high as the `at`-th exact neighbour.

    exact_scores, ids: [queries, at or more], best first; -1: no passage. Scores are computed from the embeddings, so
    that passages that tie for a place count alike and a lossy index gets no credit for its own rounding.
    """
    exact_scores, ids = exact_scores[:, :at], ids[:, :at]
    scores = np.full(ids.shape, -np.inf, dtype=np.float32)
    for number, found in enumerate(ids):
        valid = found >= 0
        scores[number, valid] = embeddings.take(found[valid]) @ queries[number]
    return float((scores >= exact_scores[:, -1:] - SCORE_NOISE).mean())


def exact_neighbours(embeddings: Embeddings, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and ids [len(queries), k] of the exact search over all embeddings, one block in memory at a time."""
    import faiss

    best_scores = np.empty((len(queries), 0), dtype=np.float32)
    best_ids = np.empty((len(queries), 0), dtype=np.int64)
    for first, block in _numbered(embeddings):
        scores, ids = faiss.knn(queries, block, min(k, len(block)), metric=faiss.METRIC_INNER_PRODUCT)
        scores, ids = np.hstack([best_scores, scores]), np.hstack([best_ids, ids + first])
        order = np.lexsort((ids, -scores))[:, :k]
        best_scores, best_ids = np.take_along_axis(scores, order, axis=1), np.take_along_axis(ids, order, axis=1)
    return best_scores, best_ids


def _numbered(embeddings: Embeddings) -> Iterator[tuple[int, np.ndarray]]:
    first = 0
    for block in embeddings.blocks():
        yield first, block
        first += len(block)
