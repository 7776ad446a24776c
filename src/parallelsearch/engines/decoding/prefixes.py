"""Keys and values of token sequences that were read before, found again by the sequence that continues one of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from parallelsearch.engines.decoding.key_values import RowKeyValues

_MODULUS = (1 << 61) - 1
_BASE = 1_000_003


class PrefixStore:
    """At most `limit` bytes of keys and values; the oldest go first. What is found is taken out."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = 0
        self._entries: OrderedDict[tuple[int, int], tuple[list[int], RowKeyValues]] = OrderedDict()

    @property
    def keeps_any(self) -> bool:
        return self._limit > 0

    def clear(self) -> None:
        self._entries.clear()
        self._bytes = 0

    def add(self, token_ids: list[int], key_values: RowKeyValues) -> None:
        """Stores the keys and values of `token_ids`, one for each."""
        key = (len(token_ids), _hashes(token_ids)[-1])
        if key in self._entries:
            self._remove(key)
        self._entries[key] = (token_ids, key_values)
        self._bytes += key_values.bytes
        while self._bytes > self._limit:
            self._remove(next(iter(self._entries)))

    def longest(self, token_ids: Sequence[int]) -> tuple[int, RowKeyValues | None]:
        """Length, and keys and values, of the longest stored sequence that `token_ids` continues; (0, None) if none."""
        if not self._entries:
            return 0, None
        hashes = _hashes(token_ids)
        for length in range(len(token_ids) - 1, 0, -1):
            key = (length, hashes[length - 1])
            entry = self._entries.get(key)
            if entry and entry[0] == list(token_ids[:length]):
                self._remove(key)
                return length, entry[1]
        return 0, None

    def _remove(self, key: tuple[int, int]) -> None:
        _, key_values = self._entries.pop(key)
        self._bytes -= key_values.bytes


def _hashes(token_ids: Sequence[int]) -> list[int]:
    """Rolling hash of every prefix, the shortest first."""
    value, hashes = 0, []
    for token in token_ids:
        value = (value * _BASE + token + 1) % _MODULUS
        hashes.append(value)
    return hashes
