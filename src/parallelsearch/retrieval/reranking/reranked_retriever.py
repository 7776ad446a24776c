"""An index whose first hits a cross-encoder puts in a new order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from parallelsearch.records import Hit
from parallelsearch.retrieval.encoding.encoder import passage_text
from parallelsearch.retrieval.joined_searches import JoinedSearches
from parallelsearch.retrieval.reranking.cross_encoder import CrossEncoder


class RerankedRetriever(JoinedSearches):
    """Scores the first `candidates` hits of another retriever and finds no others; scores are the cross-encoder's."""

    def __init__(self, first: JoinedSearches, reranker: CrossEncoder, manifest: dict[str, Any]) -> None:
        super().__init__(first.corpus, {key: manifest[key] for key in ("kind", "ntotal", "sha256")})
        self.first = first
        self.reranker = reranker
        self.candidates: int = manifest["candidates"]

    def keep_latest(self, answers: int) -> None:
        super().keep_latest(answers)
        self.first.keep_latest(answers)

    def find(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """All pairs of all queries are scored together; at most `candidates` hits for each query."""
        lists = self.first.find(queries, self.candidates)
        pairs = [(query, passage_text(hit.passage)) for query, hits in zip(queries, lists, strict=True) for hit in hits]
        scores = iter(self.reranker.scores(pairs))
        rescored = [
            [Hit(hit.passage, score) for hit, score in zip(hits, islice(scores, len(hits)), strict=True)]
            for hits in lists
        ]
        return [sorted(hits, key=lambda hit: (-hit.score, hit.passage.id))[:top_k] for hits in rescored]
