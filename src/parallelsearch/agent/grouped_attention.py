"""Attention for decoding on a CPU: query heads that share a key head are handled together.

Transformers copies keys and values once for every query head of a group, at every token; on a CPU these copies take
more than half of the time of a decoding step. Here they are read in place.
"""

from __future__ import annotations

from typing import Any

import torch

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
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of `query` [rows, heads, new, size] over key and value [rows, key heads, columns, size].

    `attention_mask` is added to the scores, [rows, 1, new, columns]; None means causal. Returns the outputs as
    [rows, new, heads, size].
    """
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if query.shape[2] > 1:
        output = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask, is_causal=attention_mask is None, scale=scale, enable_gqa=True
        )
        return output.transpose(1, 2).contiguous(), None
    rows, heads, _, size = query.shape
    key_heads, columns = key.shape[1:3]
    grouped = (query * scale).view(rows * key_heads, heads // key_heads, size)
    scores = torch.bmm(grouped, key.flatten(0, 1).transpose(1, 2)).view(rows, heads, columns)
    if attention_mask is not None:
        scores = scores + attention_mask[:, :, 0]
    weights = torch.softmax(scores, dim=-1).view(rows * key_heads, heads // key_heads, columns)
    return torch.bmm(weights, value.flatten(0, 1)).view(rows, 1, heads, size), None
