"""Keys and values of the rows that are decoded together, in pages of a pool (PagedAttention: Kwon et al., 2023).

A row's tokens stand in pages of its own, listed in its page table. Rows join and leave without moving the others, and
rows of different lengths need no padding: the pages in use are the first ones of the pool, so that attention of a
decoding step can read them in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

PAGE = 64  # tokens


@dataclass(slots=True)
class RowKeyValues:
    """Keys and values of one row: its pages in each pool."""

    tokens: int
    pools: list[torch.Tensor]

    @property
    def bytes(self) -> int:
        return sum(states.nbytes for states in self.pools)


@dataclass(slots=True, eq=False)
class RowPages:
    """The page table of a row: where its tokens stand, and how many they are."""

    pages: list[int]
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class PagesInUse:
    """Whose the first pages of the pool are.

    `row` of the pass, `place` among that row's pages and the position at which it starts, all [pages].
    """

    row: torch.Tensor
    place: torch.Tensor
    start: torch.Tensor
    places: int  # pages of the longest row


@dataclass(frozen=True, slots=True)
class PaddedPass:
    """Where a padded pass has its tokens, `row` and `column`, and writes them, `page` and `offset`, all [tokens].

    `table`: the pages that its attention reads, [rows, pages of the longest row].
    """

    row: torch.Tensor
    column: torch.Tensor
    page: torch.Tensor
    offset: torch.Tensor
    table: torch.Tensor


class PagedKeyValues:
    """The pages of all rows, in pools [..., pages, heads, PAGE, head size]. Unused places hold any number."""

    def __init__(self, device: torch.device) -> None:
        self.cache = Cache(layer_class_to_replicate=partial(_PagedLayer, self))  # type: ignore[arg-type]  # called
        self.device = device
        self.pools: list[torch.Tensor] = []
        self.padded: PaddedPass  # the one that runs, for the layers of `cache`
        self._owners: list[tuple[RowPages, int]] = []  # of each page in use: the row, and the place among its pages
        self._in_use: tuple[list[RowPages], PagesInUse] | None = None

    @property
    def pages(self) -> int:
        """Pages in use."""
        return len(self._owners)

    def extend(self, row: RowPages, tokens: int) -> range:
        """Makes room for so many further tokens of a row; returns their positions."""
        positions = range(row.tokens, row.tokens + tokens)
        row.tokens = positions.stop
        while len(row.pages) * PAGE < row.tokens:
            self._owners.append((row, len(row.pages)))
            row.pages.append(self.pages - 1)
            self._in_use = None
        return positions

    def in_use(self, rows: Sequence[RowPages]) -> PagesInUse:
        """Whose the pages in use are, all of which have to be pages of `rows`."""
        if self._in_use is None or self._in_use[0] != list(rows):
            number = {id(row): index for index, row in enumerate(rows)}
            owner = torch.tensor([number[id(row)] for row, _ in self._owners], device=self.device)
            place = torch.tensor([place for _, place in self._owners], device=self.device)
            self._in_use = list(rows), PagesInUse(owner, place, place * PAGE, max(len(row.pages) for row in rows))
        return self._in_use[1]

    def pool(self, number: int, empty: torch.Tensor) -> torch.Tensor:
        """A pool with room for all pages in use; `empty` is one like it without pages."""
        if number == len(self.pools):
            self.pools.append(empty)
        pool = self.pools[number]
        if self.pages > (before := pool.shape[-4]):
            held = self.pages + self.pages // 4 + 16
            self.pools[number] = pool.new_zeros(*pool.shape[:-4], held, *pool.shape[-3:])
            self.pools[number].narrow(-4, 0, before).copy_(pool)
        return self.pools[number]

    def load(self, stored: RowKeyValues) -> RowPages:
        """A row of stored keys and values."""
        row = RowPages([])
        self.extend(row, stored.tokens)
        pages = torch.tensor(row.pages, device=self.device)
        for number, states in enumerate(stored.pools):
            self.pool(number, states.narrow(-4, 0, 0)).index_copy_(-4, pages, states)
        return row

    def stored(self, row: RowPages) -> RowKeyValues:
        """A copy of a row."""
        pages = torch.tensor(row.pages, device=self.device)
        return RowKeyValues(row.tokens, [pool.index_select(-4, pages) for pool in self.pools])

    def remove(self, rows: Sequence[RowPages]) -> None:
        """Takes rows out; the last pages in use move into theirs. Without any row, the memory is given back."""
        empty = {page for row in rows for page in row.pages}
        kept = self.pages - len(empty)
        moving = [page for page in range(kept, self.pages) if page not in empty]
        targets = sorted(page for page in empty if page < kept)
        if moving:
            source, target = (torch.tensor(pages, device=self.device) for pages in (moving, targets))
            for pool in self.pools:
                pool.index_copy_(-4, target, pool.index_select(-4, source))
        for page, to in zip(moving, targets, strict=True):
            row, place = self._owners[to] = self._owners[page]
            row.pages[place] = to
        del self._owners[kept:]
        self._in_use = None
        if not kept:
            self.pools.clear()


class _PagedLayer(DynamicLayer):
    """Keys and values of one layer of a padded pass, a pool each."""

    def __init__(self, owner: PagedKeyValues) -> None:
        super().__init__()
        self._owner = owner
        self._number = 2 * len(owner.cache.layers)
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Writes what a padded pass computed; returns what it reads, both [rows, heads, columns, head size]."""
        now, read = self._owner.padded, []
        for number, states in enumerate((key_states, value_states), self._number):
            pool = self._owner.pool(number, states.new_empty(0, states.shape[1], PAGE, states.shape[3]))
            pool[now.page, :, now.offset] = states[now.row, :, now.column]
            read.append(pool[now.table].transpose(1, 2).flatten(2, 3))
        return tuple(read)

    def get_seq_length(self) -> int:
        return 0  # asked by models for default positions and masks, which every pass brings


def page_table(rows: Sequence[RowPages]) -> torch.Tensor:
    """Page tables filled up to the longest: [rows, pages]."""
    longest = max(len(row.pages) for row in rows)
    return torch.tensor([row.pages + [0] * (longest - len(row.pages)) for row in rows])


def added_mask(last: torch.Tensor, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """A mask [..., columns] added to scores: columns after `last` [...] are not seen."""
    seen = torch.arange(columns, device=last.device) <= last[..., None]
    return torch.where(seen, 0.0, torch.finfo(dtype).min).to(dtype)
