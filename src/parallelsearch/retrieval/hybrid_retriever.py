"""Several indexes of one corpus searched together, their lists joined by reciprocal rank fusion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from parallelsearch.records import Hit
from parallelsearch.retrieval.joined_searches import JoinedSearches


def reciprocal_rank_fusion(lists: Sequence[Sequence[Hit]], k: int) -> list[Hit]:
    """One list of all passages of `lists`, best first; a passage scores the sum of 1 / (k + rank), ranks from 1.

    Cormack, Clarke and Buettcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods",
    SIGIR 2009 (there k = 60). Equal scores by ascending passage id.
    """
    shares: dict[int, list[float]] = {}
    passages = {hit.passage.id: hit.passage for hits in lists for hit in hits}
    for hits in lists:
        for rank, hit in enumerate(hits, start=1):
            shares.setdefault(hit.passage.id, []).append(1 / (k + rank))
    # fsum: the same sum whatever the order of the lists, so that ties stay ties
    fused = [Hit(passages[number], math.fsum(share)) for number, share in shares.items()]
    return sorted(fused, key=lambda hit: (-hit.score, hit.passage.id))


class HybridRetriever(JoinedSearches):
    """Fuses the first `candidates` hits of each part. A hit's score is the fused one.

    Their number does not grow with `top_k`: else an answer would depend on the calls that a search is joined with.
    """

    def __init__(self, parts: Sequence[JoinedSearches], manifest: dict[str, Any]) -> None:
        super().__init__(parts[0].corpus, {key: manifest[key] for key in ("kind", "ntotal", "sha256")})
        self.parts = list(parts)
        self.candidates: int = manifest["candidates"]
        self.k: int = manifest["k"]

    def keep_latest(self, answers: int) -> None:
        super().keep_latest(answers)
        for part in self.parts:
            part.keep_latest(answers)

    def find(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """Asks every part for all queries at once; no more hits than the parts' lists have together."""
        lists = [part.find(queries, self.candidates) for part in self.parts]
        return [reciprocal_rank_fusion(hits, self.k)[:top_k] for hits in zip(*lists, strict=True)]
