"""The packed forward pass against Transformers' own, by architecture."""

from __future__ import annotations

import copy
import random

import pytest
import torch
from transformers import AutoModelForCausalLM, GemmaConfig, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from parallelsearch.engines.decoding.key_values import PagedKeyValues, RowPages
from parallelsearch.engines.decoding.packed_forward import PackedForward

SMALL = {
    "vocab_size": 200, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 512,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 128}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
ARCHITECTURES = {
    "qwen2, tied": Qwen2Config(**SMALL, tie_word_embeddings=True),
    "qwen2, yarn": Qwen2Config(**SMALL, rope_parameters=YARN),
    "llama": LlamaConfig(**SMALL),
    "llama, biases, gelu": LlamaConfig(**SMALL, attention_bias=True, mlp_bias=True, hidden_act="gelu"),
    "llama, long context": LlamaConfig(**SMALL, rope_parameters=LLAMA3),
    "llama, every head its keys": LlamaConfig(**{**SMALL, "num_key_value_heads": 6}),
    "qwen3, norms of heads, wide heads": Qwen3Config(**SMALL, head_dim=32),
}


def built(config, dtype=torch.float32, seed=0):
    """A model with random weights of some size, none of them 0 or 1."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


@torch.no_grad()
def last_logits(model, tokens: list[int]) -> torch.Tensor:
    return model(torch.tensor([tokens])).logits[0, -1]


@torch.no_grad()
def read_in_passes(model, texts: list[list[int]], most: int) -> list[tuple[list[int], torch.Tensor]]:
    """Reads `texts`, one or `most` tokens of a row in a pass; what each row has read, and its logits, each time."""
    forward, key_values, choose = PackedForward(model), PagedKeyValues(torch.device("cpu")), random.Random(1)
    rows, read, found = [RowPages([]) for _ in texts], [0] * len(texts), []
    while any(done < len(text) for done, text in zip(read, texts, strict=True)):
        new = [text[done:][: choose.choice([1, most])] for done, text in zip(read, texts, strict=True)]
        going = [row for row, tokens in enumerate(new) if tokens]
        if len(going) < len(rows):  # rows that are over leave
            key_values.remove([row for row, tokens in zip(rows, new, strict=True) if not tokens])
            rows, read, texts, new = ([each[row] for row in going] for each in (rows, read, texts, new))
        read = [done + len(tokens) for done, tokens in zip(read, new, strict=True)]
        logits = forward(key_values, rows, new)
        found += [(text[:done], line) for text, done, line in zip(texts, read, logits, strict=True)]
    return found


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("most", [20, 300])
def test_logits_are_those_of_transformers(name, most):
    """Rows of one to seven pages; 300 tokens are more than attention takes at once."""
    model, choose = built(ARCHITECTURES[name]), random.Random(0)
    assert PackedForward.fits(model)
    texts = [[choose.randrange(200) for _ in range(length)] for length in (1, 7, 64, 65, 130, 400)]
    checked = read_in_passes(model, texts, most)
    assert max(len(tokens) for tokens, _ in checked) == 400
    for tokens, logits in checked:
        torch.testing.assert_close(logits, last_logits(model, tokens), rtol=1e-4, atol=1e-4)


def test_half_precision_stays_as_near_as_it_is_itself():
    """By Transformers in float32; bfloat16 has 8 bits, and Transformers' own pass in it is as far away."""
    model = built(ARCHITECTURES["llama"], torch.bfloat16)
    tokens = [number * number % 200 for number in range(300)]
    exact = last_logits(copy.deepcopy(model).float(), tokens)
    own = (last_logits(model, tokens).float() - exact).abs().max()
    (_, packed) = read_in_passes(model, [tokens], most=100)[-1]
    assert packed.dtype == torch.bfloat16
    assert (packed.float() - exact).abs().max() <= 2 * own


def test_weights_may_change_between_two_passes():
    """In place, as when a trained policy's are loaded, and by a change of their type."""
    model, tokens = built(ARCHITECTURES["llama"], torch.bfloat16), [3, 5, 8]
    forward = PackedForward(model)
    other = built(ARCHITECTURES["llama"], seed=1).state_dict()
    for change in (lambda: model.float(), lambda: model.load_state_dict(other)):
        change()
        with torch.no_grad():
            logits = forward(PagedKeyValues(torch.device("cpu")), [RowPages([])], [tokens])
        torch.testing.assert_close(logits[0], last_logits(model, tokens), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "config",
    [
        Qwen2Config(**SMALL, use_sliding_window=True, sliding_window=16, max_window_layers=1),
        LlamaConfig(**SMALL, rope_parameters=DYNAMIC),
        GemmaConfig(**SMALL, head_dim=8),
        MistralConfig(**SMALL),
    ],
    ids=["windows", "other rotation when longer", "scaled embeddings", "unknown"],
)
def test_other_architectures_are_left_to_transformers(config):
    assert not PackedForward.fits(built(config))
