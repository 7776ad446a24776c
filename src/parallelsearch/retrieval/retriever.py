"""What an agent searches with: one batched call for all its sub-queries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from parallelsearch.records import Hit
from parallelsearch.retrieval.encoding.encoder import Encoder
from parallelsearch.retrieval.indexes.stored_index import StoredIndex
from parallelsearch.retrieval.joined_searches import JoinedSearches
from parallelsearch.retrieval.latest import LatestAnswers


@runtime_checkable
class Retriever(Protocol):
    """Anything that finds passages: local, or behind a URL."""

    async def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """For each query at most `top_k` hits, best first. Raises RetrieverError."""
        ...


class LocalRetriever(JoinedSearches):
    """Dense retrieval: encoder, index and corpus in this process (one encoding, one index search for joined calls)."""

    def __init__(self, encoder: Encoder, index: StoredIndex) -> None:
        super().__init__(index.corpus, {key: index.manifest[key] for key in ("kind", "ntotal", "dim", "sha256")})
        self.encoder = encoder
        self.index = index

    @classmethod
    def open(cls, index_dir: Path, device: str | None = None) -> LocalRetriever:
        """Opens the index folder and the corpus and encoder its manifest names; refuses parts that do not match."""
        index = StoredIndex(index_dir)
        return cls(Encoder.open(index.encoder_dir, device), index)

    def keep_latest(self, answers: int) -> None:
        super().keep_latest(answers)
        self.encoder.latest = LatestAnswers(answers)

    def find(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """Encodes all queries together and searches the index once."""
        scores, ids = self.index.search(self.encoder.encode_queries(queries), top_k)
        return [
            [Hit(self.corpus[int(i)], float(s)) for s, i in zip(row_scores, row_ids, strict=True) if i >= 0]
            for row_scores, row_ids in zip(scores, ids, strict=True)
        ]
