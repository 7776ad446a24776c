"""Inputs of the forward passes of rows that are decoded together, over keys and values in pages.

Packed: the new tokens of all rows one after another, without padding, as in continuous batching (Orca: Yu et al., 2022;
chunked prefills: Agrawal et al., 2023): rows that read their prompt and rows that read their latest token share a pass.
Padded: a line for each row, for attention that knows nothing of pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from parallelsearch.agent.key_values import PAGE, PagedKeyValues, PagesInUse, RowPages, Written


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
    """Which tokens of a packed pass belong together.

    `last`: the place of each row's last token, [rows]; `in_use`: whose the pages are; `mask`: added to the scores of
    last tokens, [pages in use, PAGE]; `many`: None where every row reads one token.
    """

    last: torch.Tensor
    in_use: PagesInUse
    mask: torch.Tensor
    many: ManyTokens | None


def packed_inputs(
    key_values: PagedKeyValues, rows: Sequence[RowPages], tokens: Sequence[Sequence[int]], dtype: torch.dtype
) -> dict[str, Any]:
    """A model's arguments for a pass that reads further tokens of `rows`, which have to be all rows there are.

    Token ids and positions are [1, tokens]; `packed` goes to the attention, the logits are [1, rows, vocabulary].
    """
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
    device = key_values.device
    position = torch.tensor(positions, device=device)
    key_values.current = Written(torch.tensor(pages, device=device), position % PAGE)
    in_use, place = key_values.in_use(rows), torch.tensor(last, device=device)
    visible = position[place][in_use.row] - in_use.place * PAGE
    return {
        "input_ids": torch.tensor([[token for new in tokens for token in new]], device=device),
        "position_ids": position[None],
        "past_key_values": key_values.cache,
        "use_cache": True,
        "logits_to_keep": place,
        # The attention has masks of its own; a mask of four dimensions keeps models from making theirs.
        "attention_mask": torch.zeros(1, 1, 1, 1, device=device),
        "packed": PackedRows(place, in_use, _added(visible, PAGE, dtype), _many(many, dtype, device) if many else None),
    }


def padded_inputs(
    key_values: PagedKeyValues, rows: Sequence[RowPages], tokens: Sequence[Sequence[int]], dtype: torch.dtype
) -> dict[str, Any]:
    """The same with a line for each row: token ids and positions are [rows, width], logits [rows, 1, vocabulary].

    Shorter rows are padded on the left, so that the last column belongs to the last token of every row. The mask is
    added to attention scores, [rows, 1, width, columns]. `rows` need not be all rows.
    """
    width = max(len(new) for new in tokens)
    starts = torch.tensor([[key_values.extend(row, len(new)).start] for row, new in zip(rows, tokens, strict=True)])
    padding = torch.tensor([[width - len(new)] for new in tokens])
    positions = (starts + torch.arange(width) - padding).clamp_(min=0)
    table = _table(rows)
    row, column = (torch.arange(width) >= padding).nonzero(as_tuple=True)
    position = positions[row, column]
    device = key_values.device
    page, offset = table[row, position // PAGE].to(device), (position % PAGE).to(device)
    key_values.current = Written(page, offset, (row.to(device), column.to(device)), table.to(device))
    positions = positions.to(device)
    return {
        "input_ids": torch.tensor([[0] * (width - len(new)) + list(new) for new in tokens]).to(device),
        "position_ids": positions,
        "past_key_values": key_values.cache,
        "use_cache": True,
        "logits_to_keep": 1,
        "attention_mask": _added(positions, table.shape[1] * PAGE, dtype)[:, None],
    }


def _many(rows: Sequence[tuple[int, RowPages, range]], dtype: torch.dtype, device: torch.device) -> ManyTokens:
    """Of (place of the first token in the pass, row, positions of the tokens)."""
    width = torch.arange(max(len(read) for _, _, read in rows))
    further = torch.minimum(width, torch.tensor([[len(read) - 1] for _, _, read in rows]))
    token = torch.tensor([[first] for first, _, _ in rows]) + further
    position = torch.tensor([[read.start] for _, _, read in rows]) + further
    table = _table([row for _, row, _ in rows])
    mask = _added(position, table.shape[1] * PAGE, dtype)[:, None]
    return ManyTokens(token.to(device), table.to(device), mask.to(device))


def _table(rows: Sequence[RowPages]) -> torch.Tensor:
    """Page tables filled up to the longest: [rows, pages]."""
    longest = max(len(row.pages) for row in rows)
    return torch.tensor([row.pages + [0] * (longest - len(row.pages)) for row in rows])


def _added(last: torch.Tensor, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """A mask [..., columns] added to scores: columns after `last` [...] are not seen."""
    seen = torch.arange(columns, device=last.device) <= last[..., None]
    return torch.where(seen, 0.0, torch.finfo(dtype).min).to(dtype)
