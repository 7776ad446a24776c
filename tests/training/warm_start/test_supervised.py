"""One supervised step: the gradient of a batch, whatever passes and threads it was computed in."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from parallelsearch.training.warm_start.demonstration_batches import IGNORED, Padded
from parallelsearch.training.warm_start.supervised import (
    FINAL_RATE,
    READING_WEIGHT,
    SupervisedSteps,
    gradient_threads,
    rate_of,
)

VOCABULARY = 61


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Qwen2ForCausalLM:
    monkeypatch.setenv("PARALLELSEARCH_FLOAT32", "1")
    torch.manual_seed(3)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=48,
        tie_word_embeddings=True,
    )
    return Qwen2ForCausalLM(config)


def rows(lengths: list[int], width: int, generator: torch.Generator) -> Padded:
    """Rows of random tokens; the second half of each is the policy's own."""
    ids = torch.randint(1, VOCABULARY, (len(lengths), width), generator=generator)
    places = torch.arange(width)[None].expand_as(ids)
    ends = torch.tensor(lengths)[:, None]
    mask = (places < ends).long()
    labels = torch.where((places < ends) & (places >= ends // 2), ids, IGNORED)
    return Padded(ids, labels, mask)


@pytest.fixture
def passes() -> list[Padded]:
    generator = torch.Generator().manual_seed(4)
    return [rows([40, 33, 37], 48, generator), rows([12, 9], 16, generator), rows([20], 32, generator)]


def reference_gradient(
    model: Qwen2ForCausalLM, passes: list[Padded], reading: bool
) -> tuple[dict[str, torch.Tensor], float]:
    """From the definition: mean cross-entropy over all tokens of a kind, one backward pass, clipped to norm 1."""
    model = copy.deepcopy(model)
    own, read = [], []
    for part in passes:
        logits = model(input_ids=part.ids, attention_mask=part.mask).logits[:, :-1]
        losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), part.ids[:, 1:], reduction="none")
        mine = part.labels[:, 1:] != IGNORED
        own.append(losses[mine])
        read.append(losses[~mine & (part.mask[:, 1:] == 1)])
    mean = torch.cat(own).mean()
    (mean + (READING_WEIGHT * torch.cat(read).mean() if reading else 0)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return {name: parameter.grad for name, parameter in model.named_parameters()}, mean.item()


@pytest.mark.parametrize("reading", [False, True])
def test_the_gradient_in_passes_is_that_of_the_whole_batch(model, passes, reading: bool) -> None:
    expected, expected_loss = reference_gradient(model, passes, reading)
    with gradient_threads() as pool:
        steps = SupervisedSteps(model, 1e-3, pool)
        steps.optimisers = []  # they would consume the gradient
        loss, accuracy = steps.take(passes, 1.0, reading=reading)

    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert 0 <= accuracy <= 1
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-4, atol=1e-6, msg=name)


def test_the_number_of_threads_changes_no_bit(model, passes) -> None:
    models = [copy.deepcopy(model) for _ in range(2)]
    for count, each in enumerate(models, 1):
        with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            steps = SupervisedSteps(each, 1e-3, pool)
            for _ in range(3):
                steps.take(passes, 1.0, reading=True)
    for one, two in zip(*(each.parameters() for each in models), strict=True):
        assert torch.equal(one, two)


def test_a_callers_thread_count_comes_back() -> None:
    before = torch.get_num_threads()
    with gradient_threads():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_the_rate_rises_stays_and_falls_in_lines() -> None:
    assert rate_of(25, 1000) == pytest.approx(0.5)
    assert rate_of(50, 1000) == rate_of(650, 1000) == 1.0
    assert rate_of(825, 1000) == pytest.approx(0.5)
    assert rate_of(1000, 1000) == FINAL_RATE
