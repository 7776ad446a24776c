"""The forward pass of Llama-like models over the tokens of many rows, packed one after another without padding.

Rows that read their prompt and rows that read their latest token share a pass, as in continuous batching (Orca: Yu et
al., 2022; chunked prefills: Agrawal et al., 2023). Transformers' own forward pass has a line for each row, copies keys
and values once for every query head, and computes the last layer also for tokens of which nothing more is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from parallelsearch.engines.decoding.key_values import PAGE, PagedKeyValues, RowPages
from parallelsearch.engines.decoding.packed_attention import attention_of_last, packed_attention
from parallelsearch.engines.decoding.packed_rows import pack

_MODELS = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")  # plain attention: no soft cap, no sinks
_ROTATIONS = ("default", "linear", "llama3", "yarn")  # the same at every length

Rotation = tuple[torch.Tensor, torch.Tensor]  # cosine and sine, [tokens, 1, head size], the sine's first half negative


class PackedForward:
    """Reads tokens with the parameters of a model of Transformers, which may change in place between two passes."""

    mixes = True  # rows that read one token and rows that read many share a pass

    def __init__(self, model: Any) -> None:
        self._model = model.model
        self._head = model.lm_head
        self._layers = [_Layer(layer) for layer in model.model.layers]
        key_heads, size = model.config.num_key_value_heads, model.model.layers[0].self_attn.head_dim
        self._group = model.config.num_attention_heads // key_heads
        self._pool_shape = len(self._layers), 2, 0, key_heads, PAGE, size  # of keys and values
        self._rotations: Rotation | None = None  # of the first positions

    @staticmethod
    def fits(model: Any) -> bool:
        """Whether a model's architecture is known here, and it is on a CPU."""
        return (
            type(model).__name__ in _MODELS
            and type(model).__module__.startswith("transformers.")
            and not getattr(model.config, "use_sliding_window", False)
            and model.config.rope_parameters.get("rope_type") in _ROTATIONS
            and next(model.parameters()).device.type == "cpu"
        )

    def __call__(
        self, key_values: PagedKeyValues, rows: Sequence[RowPages], tokens: Sequence[Sequence[int]]
    ) -> torch.Tensor:
        """Logits [rows, vocabulary] after further tokens of `rows`, which have to be all rows there are."""
        states = self._model.embed_tokens(torch.tensor([token for new in tokens for token in new]))
        packed = pack(key_values, rows, tokens, self._group, states.dtype)
        rotation = self._rotation(packed.position, states.dtype)
        in_use = key_values.pool(0, states.new_empty(self._pool_shape)).narrow(2, 0, key_values.pages)
        for number, (layer, (keys, values)) in enumerate(zip(self._layers, in_use, strict=True)):
            normed = layer.normed(states)
            key, value = layer.key_value(normed, rotation)
            keys[packed.page, :, packed.offset] = key
            values[packed.page, :, packed.offset] = value
            attention = packed_attention
            if number == len(self._layers) - 1:  # of its outputs, only those of last tokens are read
                attention = attention_of_last
                if packed.chunks:
                    states, normed = states[packed.last], normed[packed.last]
                    rotation = rotation[0][packed.last], rotation[1][packed.last]
            attended = attention(layer.query(normed, rotation), keys, values, packed, layer.scale)
            states = layer.rest(states, attended)
        return self._head(_norm(states, self._model.norm))

    def _rotation(self, position: torch.Tensor, dtype: torch.dtype) -> Rotation:
        """Rotary position embeddings of tokens (RoPE: Su et al., 2021)."""
        longest = int(position.max()) + 1
        if self._rotations is None or self._rotations[0].shape[0] < longest or self._rotations[0].dtype != dtype:
            first = torch.arange(2 * longest)
            both = self._model.rotary_emb(torch.empty(0, dtype=dtype), first[None])
            cosine, sine = (part[0, :, None] for part in both)
            half = sine.shape[-1] // 2
            self._rotations = cosine, torch.cat((-sine[..., :half], sine[..., half:]), dim=-1)
        cosines, sines = self._rotations
        return cosines.index_select(0, position), sines.index_select(0, position)


class _Layer:
    """The parts of one layer. Calls of modules would take as long as small products: only their parameters are used."""

    def __init__(self, layer: Any) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.scale = attention.scaling
        self._size = attention.head_dim
        self._input_norm, self._rest_norm = layer.input_layernorm, layer.post_attention_layernorm
        self._query, self._key, self._value, self._output = (
            attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj
        )  # fmt: skip
        self._query_norm, self._key_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
        self._gate, self._up, self._down, self._activation = mlp.gate_proj, mlp.up_proj, mlp.down_proj, mlp.act_fn

    def normed(self, states: torch.Tensor) -> torch.Tensor:
        """What queries, keys and values are computed from, [tokens, hidden size]."""
        return _norm(states, self._input_norm)

    def query(self, normed: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        """[tokens, heads, head size]."""
        return self._rotated(_linear(normed, self._query), self._query_norm, rotation)

    def key_value(self, normed: torch.Tensor, rotation: Rotation) -> tuple[torch.Tensor, torch.Tensor]:
        """Both [tokens, key heads, head size]."""
        key = self._rotated(_linear(normed, self._key), self._key_norm, rotation)
        return key, _linear(normed, self._value).view(key.shape)

    def rest(self, states: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """The layer's states [tokens, hidden size] from those before it and the outputs of attention."""
        states = _plus_linear(states, attended.flatten(1), self._output)
        normed = _norm(states, self._rest_norm)
        gated = self._activation(_linear(normed, self._gate)).mul_(_linear(normed, self._up))
        return _plus_linear(states, gated, self._down)

    def _rotated(self, states: torch.Tensor, norm: nn.Module | None, rotation: Rotation) -> torch.Tensor:
        states = states.view(states.shape[0], -1, self._size)
        if norm is not None:
            states = _norm(states, norm)
        return (states * rotation[0]).addcmul_(states.roll(self._size // 2, -1), rotation[1])


def _norm(states: torch.Tensor, module: Any) -> torch.Tensor:
    return functional.rms_norm(states, states.shape[-1:], module.weight, module.variance_epsilon)


def _linear(states: torch.Tensor, module: Any) -> torch.Tensor:
    return functional.linear(states, module.weight, module.bias)


def _plus_linear(states: torch.Tensor, further: torch.Tensor, module: Any) -> torch.Tensor:
    states = torch.addmm(states, further, module.weight.t())
    return states if module.bias is None else states.add_(module.bias)
