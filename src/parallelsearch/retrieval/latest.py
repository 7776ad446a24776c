"""The most recent answers to queries, kept in memory: vectors of the encoder, hits of a search."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from cachetools import LRUCache

CACHED_QUERIES = 20_000

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class LatestAnswers(Generic[Key, Answer]):
    """At most `size` answers, the longest unused forgotten first. Thread-safe. Size 0 keeps nothing."""

    def __init__(self, size: int = CACHED_QUERIES) -> None:
        self._entries: LRUCache[Key, Answer] = LRUCache(size)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def known(self, keys: Iterable[Key]) -> dict[Key, Answer]:
        """The answers at hand; asking for one makes it the most recent."""
        with self._lock:
            return {key: self._entries[key] for key in keys if key in self._entries}

    def keep(self, answers: Mapping[Key, Answer]) -> None:
        """Adds answers, the last one being the most recent."""
        if not self._entries.maxsize:
            return
        with self._lock:
            self._entries.update(answers)
