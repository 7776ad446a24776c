"""Attention of a packed pass: keys and values are read in their pages, and once for all heads that share them."""

from __future__ import annotations

import torch

from parallelsearch.agent.packed_rows import ManyTokens, PackedRows


def packed_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, packed: PackedRows, scale: float
) -> torch.Tensor:
    """Attention of `query` [tokens, heads, size] over pages of keys and values [pages, key heads, PAGE, size].

    Returns outputs of the query's shape.
    """
    if packed.many is None:
        return attention_of_last(query, key, value, packed, scale)
    output = torch.empty_like(query)
    output[packed.last] = attention_of_last(query[packed.last], key, value, packed, scale)
    output[packed.many.token] = _of_many(query, key, value, packed.many, scale)
    return output


def attention_of_last(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, packed: PackedRows, scale: float
) -> torch.Tensor:
    """The same for the last tokens of rows, [rows, heads, size]: scores page by page, a softmax over a row's pages."""
    of = packed.in_use
    rows, heads, size = query.shape
    pages, key_heads, page = key.shape[:3]
    asked = query.index_select(0, of.row).view(pages * key_heads, heads // key_heads, size)
    mask = packed.mask[:, None].expand(-1, key_heads, -1).reshape(pages * key_heads, 1, page)
    scores = torch.baddbmm(mask, asked, key.flatten(0, 1).transpose(1, 2), alpha=scale)
    together = scores.new_full((rows, heads, of.places, page), torch.finfo(scores.dtype).min)
    together[of.row, :, of.place] = scores.view(pages, heads, page)
    weights = torch.softmax(together.view(rows, heads, -1), dim=-1).view(together.shape)[of.row, :, of.place]
    output = torch.bmm(weights.view(pages * key_heads, -1, page), value.flatten(0, 1)).view(pages, heads, size)
    return query.new_zeros(rows, heads, size).index_add_(0, of.row, output)


def _of_many(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, many: ManyTokens, scale: float
) -> torch.Tensor:
    """Outputs [rows, new tokens, heads, size] of the rows that read more than one token."""
    keys, values = (part[many.table].transpose(1, 2).flatten(2, 3) for part in (key, value))
    output = torch.nn.functional.scaled_dot_product_attention(
        query[many.token].transpose(1, 2), keys, values, attn_mask=many.mask, scale=scale, enable_gqa=True
    )
    return output.transpose(1, 2)
