"""Attention for decoding on a CPU: keys and values are read in their pages, and once for all heads that share them.

Transformers copies keys and values once for every query head of a group, at every token, and pads them to the longest
row; on a CPU this takes more than half of the time of a decoding step.
"""

from __future__ import annotations

from typing import Any

import torch

from parallelsearch.agent.forward_inputs import ManyTokens, PackedRows

NAME = "parallelsearch_grouped"
_MODELS = ("llama", "qwen2", "qwen3")  # plain attention: no soft cap, no sinks, no windows


def use_grouped_attention(model: Any) -> bool:
    """Switches a model on a CPU to this attention where its architecture allows it; returns whether it does."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    config = model.config
    if config.model_type not in _MODELS or getattr(config, "use_sliding_window", False):
        return False
    if next(model.parameters()).device.type != "cpu":
        return False
    ALL_ATTENTION_FUNCTIONS.register(NAME, grouped_attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, eager_mask)  # additive: made once, not in every layer
    model.set_attn_implementation(NAME)
    return True


def grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    packed: PackedRows | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of `query` [rows, heads, new, size] over key and value [rows, key heads, columns, size].

    `attention_mask` is added to the scores, [rows, 1, new, columns]; None means causal. With `packed`, the query is [1,
    heads, new tokens of all rows, size], key and value are the pages of all rows [pages, key heads, PAGE, size], and
    `attention_mask` is not read. Returns the outputs as [rows, new, heads, size].
    """
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if packed is not None:
        return _packed(query[0].transpose(0, 1), key, value, packed, scale)[None], None
    output = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, is_causal=attention_mask is None, scale=scale, enable_gqa=True
    )
    return output.transpose(1, 2).contiguous(), None


def _packed(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, packed: PackedRows, scale: float
) -> torch.Tensor:
    """Outputs [tokens, heads, size] of queries of the same shape."""
    if packed.many is None:
        return _over_pages(query * scale, key, value, packed)
    output = torch.empty_like(query)
    output[packed.last] = _over_pages(query[packed.last] * scale, key, value, packed)
    output[packed.many.token] = _of_many(query, key, value, packed.many, scale)
    return output


def _of_many(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, many: ManyTokens, scale: float
) -> torch.Tensor:
    """Outputs [rows, new tokens, heads, size] of the rows that read more than one token."""
    keys, values = (part[many.table].transpose(1, 2).flatten(2, 3) for part in (key, value))
    output = torch.nn.functional.scaled_dot_product_attention(
        query[many.token].transpose(1, 2), keys, values, attn_mask=many.mask, scale=scale, enable_gqa=True
    )
    return output.transpose(1, 2)


def _over_pages(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, packed: PackedRows) -> torch.Tensor:
    """Outputs [rows, heads, size] for one token of each row: scores page by page, a softmax over all pages of a row."""
    of = packed.in_use
    rows, heads, size = query.shape
    pages, key_heads, page = key.shape[:3]
    group = heads // key_heads
    asked = query.view(rows, key_heads, group, size)[of.row].flatten(0, 1)
    scores = torch.bmm(asked, key.flatten(0, 1).transpose(1, 2)).view(pages, heads, page) + packed.mask[:, None]
    together = scores.new_full((rows, of.places, heads, page), torch.finfo(scores.dtype).min)
    together[of.row, of.place] = scores
    weights = torch.softmax(together.transpose(1, 2).flatten(2), dim=-1).view(rows, heads, of.places, page)
    weights = weights.transpose(1, 2)[of.row, of.place].view(pages * key_heads, group, page)
    output = torch.bmm(weights, value.flatten(0, 1)).view(pages, heads, size)
    return query.new_zeros(rows, heads, size).index_add_(0, of.row, output)
