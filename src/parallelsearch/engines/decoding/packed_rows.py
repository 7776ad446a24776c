"""Which tokens of a packed pass belong together, and which keys and values each of them sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch

from parallelsearch.engines.decoding.key_values import PAGE, PagedKeyValues, PagesInUse, RowPages, added_mask

_CHUNK = 256  # tokens whose scores are computed at once: a long prompt's would not fit into memory


@dataclass(frozen=True, slots=True)
class Chunk:
    """Successive tokens of one row, places `start` to `stop` of a packed pass.

    `pages`: those of what the row holds up to the last of them; `mask`: added to their scores, [tokens * heads that
    share a key head, columns], one head after another.
    """

    start: int
    stop: int
    pages: torch.Tensor
    mask: torch.Tensor


@dataclass(frozen=True, slots=True)
class PackedRows:
    """The new tokens of all rows, one after another.

    `position` in its row of each token, and where it is written, `page` and `offset`, [tokens]; `last`: the place of
    each row's last token, [rows]; `in_use`: whose the pages are; `mask`: added to the scores of last tokens, [pages in
    use, PAGE]; `chunks`: the tokens of rows that read more than one.
    """

    position: torch.Tensor
    page: torch.Tensor
    offset: torch.Tensor
    last: torch.Tensor
    in_use: PagesInUse
    mask: torch.Tensor
    chunks: list[Chunk]


def pack(
    key_values: PagedKeyValues,
    rows: Sequence[RowPages],
    tokens: Sequence[Sequence[int]],
    group: int,
    dtype: torch.dtype,
) -> PackedRows:
    """Makes room for further tokens of `rows`, which have to be all rows there are.

    `group`: how many heads share a key head; masks are of `dtype`.
    """
    positions: list[int] = []
    pages: list[int] = []
    last: list[int] = []
    chunks: list[Chunk] = []
    for row, new in zip(rows, tokens, strict=True):
        read = key_values.extend(row, len(new))
        if len(new) > 1:
            chunks += _chunks(row, read, len(positions), group, dtype)
        positions += read
        pages += [row.pages[position // PAGE] for position in read]
        last.append(len(positions) - 1)
    position, place, in_use = torch.tensor(positions), torch.tensor(last), key_values.in_use(rows)
    seen = position[place].index_select(0, in_use.row).sub_(in_use.start).clamp_(max=PAGE - 1)
    mask = _page_masks(dtype).index_select(0, seen)
    return PackedRows(position, torch.tensor(pages), position % PAGE, place, in_use, mask, chunks)


def _chunks(row: RowPages, read: range, start: int, group: int, dtype: torch.dtype) -> list[Chunk]:
    """Of the tokens at positions `read` of a row, which stand in the pass from `start` on."""
    chunks = []
    for first in range(0, len(read), _CHUNK):
        part = read[first : first + _CHUNK]
        pages = torch.tensor(row.pages[: -(-part.stop // PAGE)])
        mask = added_mask(torch.arange(part.start, part.stop), part.stop, dtype).repeat(group, 1)
        chunks.append(Chunk(start + first, start + first + len(part), pages, mask))
    return chunks


@cache
def _page_masks(dtype: torch.dtype) -> torch.Tensor:
    """Masks of a page by the last place that is seen, [PAGE, PAGE]."""
    return added_mask(torch.arange(PAGE), PAGE, dtype)
