"""Attention of a packed pass: keys and values are read in their pages, and once for all heads that share them."""

from __future__ import annotations

import torch

from parallelsearch.engines.decoding.packed_rows import Chunk, PackedRows


def packed_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, packed: PackedRows, scale: float
) -> torch.Tensor:
    """Attention of `query` [tokens, heads, size] over pages of keys and values [pages, key heads, PAGE, size].

    Returns outputs of the query's shape.
    """
    if not packed.chunks:
        return attention_of_last(query, key, value, packed, scale)
    output = torch.empty_like(query)
    output[packed.last] = attention_of_last(query[packed.last], key, value, packed, scale)
    for chunk in packed.chunks:
        output[chunk.start : chunk.stop] = _of_chunk(query[chunk.start : chunk.stop], key, value, chunk, scale)
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
    weights = _softmax(together.view(rows, heads, -1)).view(together.shape)[of.row, :, of.place]
    output = torch.bmm(weights.view(pages * key_heads, -1, page), value.flatten(0, 1)).view(pages, heads, size)
    return query.new_zeros(rows, heads, size).index_add_(0, of.row, output)


def _of_chunk(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, chunk: Chunk, scale: float) -> torch.Tensor:
    """Outputs of a chunk's queries, of their shape [tokens, heads, size]."""
    (tokens, heads, size), key_heads, columns = query.shape, key.shape[1], chunk.mask.shape[1]
    keys, values = (
        pool.index_select(0, chunk.pages).transpose(0, 1).flatten(1, 2)[:, :columns] for pool in (key, value)
    )
    asked = query.view(tokens, key_heads, -1, size).permute(1, 2, 0, 3).reshape(key_heads, -1, size)
    weights = _softmax(torch.baddbmm(chunk.mask, asked, keys.transpose(1, 2), alpha=scale))
    output = torch.bmm(weights, values).view(key_heads, -1, tokens, size)
    return output.permute(2, 0, 1, 3).reshape(tokens, heads, size)


def _softmax(scores: torch.Tensor) -> torch.Tensor:
    """In float32 whatever the type of `scores`, as in Transformers."""
    return torch.softmax(scores, dim=-1, dtype=torch.float32).to(scores.dtype)
