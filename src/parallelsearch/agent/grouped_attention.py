"""Attention for decoding on a CPU: keys and values are read in their pages, and once for all heads that share them.

Transformers copies keys and values once for every query head of a group, at every token, and pads them to the longest
row; on a CPU this takes more than half of the time of a decoding step.
"""

from __future__ import annotations

from typing import Any

import torch

from parallelsearch.agent.key_values import PagesInUse

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
    pages_in_use: PagesInUse | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of `query` [rows, heads, new, size] over key and value [rows, key heads, columns, size].

    `attention_mask` is added to the scores, [rows, 1, new, columns]; None means causal. With `pages_in_use`, each row
    has one new token, key and value are the pages of all rows [pages, key heads, PAGE, size], and the mask is [pages,
    1, 1, PAGE]. Returns the outputs as [rows, new, heads, size].
    """
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if pages_in_use is not None and attention_mask is not None:
        return _over_pages(query * scale, key, value, attention_mask, pages_in_use), None
    output = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, is_causal=attention_mask is None, scale=scale, enable_gqa=True
    )
    return output.transpose(1, 2).contiguous(), None


def _over_pages(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, of: PagesInUse
) -> torch.Tensor:
    """Scores page by page; the softmax of a row over all its pages."""
    rows, heads, _, size = query.shape
    pages, key_heads, page = key.shape[:3]
    group = heads // key_heads
    asked = query.view(rows, key_heads, group, size)[of.row].flatten(0, 1)
    scores = torch.bmm(asked, key.flatten(0, 1).transpose(1, 2)).view(pages, heads, page) + mask[:, 0]
    together = scores.new_full((rows, of.places, heads, page), torch.finfo(scores.dtype).min)
    together[of.row, of.place] = scores
    weights = torch.softmax(together.transpose(1, 2).flatten(2), dim=-1).view(rows, heads, of.places, page)
    weights = weights.transpose(1, 2)[of.row, of.place].view(pages * key_heads, group, page)
    output = torch.bmm(weights, value.flatten(0, 1)).view(pages, heads, size)
    return query.new_zeros(rows, heads, size).index_add_(0, of.row, output)[:, None]
