"""Which tokens of a packed pass belong together, and which keys and values each of them sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch

from parallelsearch.agent.key_values import PAGE, PagedKeyValues, PagesInUse, RowPages, added_mask, page_table


@dataclass(frozen=True, slots=True)
class ManyTokens:
    """The rows of a packed pass that read more than one token.

    `token`: the places of their tokens in the pass, [rows, new tokens], shorter rows repeating their last; `table`:
    their pages, [rows, pages], filled up with any; `mask`: added to scores, [rows, 1, new tokens, pages * PAGE].
    """

    token: torch.Tensor
    table: torch.Tensor
    mask: torch.Tensor


@dataclass(frozen=True, slots=True)
class PackedRows:
    """The new tokens of all rows, one after another.

    `position` in its row of each token, and where it is written, `page` and `offset`, [tokens]; `last`: the place of
    each row's last token, [rows]; `in_use`: whose the pages are; `mask`: added to the scores of last tokens, [pages in
    use, PAGE]; `many`: None where every row reads one token.
    """

    position: torch.Tensor
    page: torch.Tensor
    offset: torch.Tensor
    last: torch.Tensor
    in_use: PagesInUse
    mask: torch.Tensor
    many: ManyTokens | None


def pack(
    key_values: PagedKeyValues, rows: Sequence[RowPages], tokens: Sequence[Sequence[int]], dtype: torch.dtype
) -> PackedRows:
    """Makes room for further tokens of `rows`, which have to be all rows there are; masks are of `dtype`."""
    positions: list[int] = []
    pages: list[int] = []
    last: list[int] = []
    many: list[tuple[int, RowPages, range]] = []
    for row, new in zip(rows, tokens, strict=True):
        read = key_values.extend(row, len(new))
        if len(new) > 1:
            many.append((len(positions), row, read))
        positions += read
        pages += [row.pages[position // PAGE] for position in read]
        last.append(len(positions) - 1)
    position, place, in_use = torch.tensor(positions), torch.tensor(last), key_values.in_use(rows)
    seen = position[place].index_select(0, in_use.row).sub_(in_use.start).clamp_(max=PAGE - 1)
    mask = _page_masks(dtype).index_select(0, seen)
    further = _many(many, dtype) if many else None
    return PackedRows(position, torch.tensor(pages), position % PAGE, place, in_use, mask, further)


@cache
def _page_masks(dtype: torch.dtype) -> torch.Tensor:
    """Masks of a page by the last place that is seen, [PAGE, PAGE]."""
    return added_mask(torch.arange(PAGE), PAGE, dtype)


def _many(rows: Sequence[tuple[int, RowPages, range]], dtype: torch.dtype) -> ManyTokens:
    """Of (place of the first token in the pass, row, positions of the tokens)."""
    width = torch.arange(max(len(read) for _, _, read in rows))
    further = torch.minimum(width, torch.tensor([[len(read) - 1] for _, _, read in rows]))
    token = torch.tensor([[first] for first, _, _ in rows]) + further
    position = torch.tensor([[read.start] for _, _, read in rows]) + further
    table = page_table([row for _, row, _ in rows])
    return ManyTokens(token, table, added_mask(position, table.shape[1] * PAGE, dtype)[:, None])
