"""An index folder -> the retriever that searches it. Server, evaluation and training open indexes only here."""

from __future__ import annotations

from pathlib import Path

from parallelsearch.retrieval.joined_searches import JoinedSearches
from parallelsearch.retrieval.retriever import LocalRetriever


def open_retriever(index_dir: Path, device: str | None = None) -> JoinedSearches:
    """The retriever of the kind that the folder's manifest names, with everything it needs opened and checked.

    Raises DataError for a missing or broken part, MismatchError for parts that do not belong together.
    """
    return LocalRetriever.open(index_dir, device)
