"""BM25 as a retriever."""

from __future__ import annotations

from collections.abc import Sequence

from parallelsearch.records import Hit
from parallelsearch.retrieval.indexes.bm25 import StoredBm25
from parallelsearch.retrieval.joined_searches import JoinedSearches


class Bm25Retriever(JoinedSearches):
    """Passages that have words of the query. A query without any word of the corpus finds nothing."""

    def __init__(self, index: StoredBm25) -> None:
        super().__init__(index.corpus, {key: index.manifest[key] for key in ("kind", "ntotal", "sha256")})
        self.index = index

    def find(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """Scores are BM25 scores (above 0), equal ones by ascending passage id."""
        return [
            [Hit(self.corpus[int(i)], float(s)) for s, i in zip(scores, ids, strict=True)]
            for scores, ids in self.index.search(queries, top_k)
        ]
