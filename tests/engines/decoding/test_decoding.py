"""Batched decoding against Transformers' own generation and against itself in other batches."""

from __future__ import annotations

import random

import pytest
import torch

from parallelsearch.config import PolicyConfig
from parallelsearch.engines.decoding.batch_decoder import BatchDecoder, DecodeRequest
from parallelsearch.engines.decoding.packed_forward import PackedForward
from parallelsearch.engines.decoding.padded_forward import PaddedForward
from parallelsearch.engines.decoding.token_choice import TokenChooser, uniform_draws
from parallelsearch.engines.engine import Generation, Sampling


@pytest.fixture(scope="module")
def prompts(tokenizer) -> list[list[int]]:
    choose = random.Random(3)
    return [[choose.randrange(3, 300) for _ in range(choose.randrange(1, 60))] for _ in range(20)]


def requests(prompts, max_tokens=12, stop=(), temperature=0.0, **settings) -> list[DecodeRequest]:
    return [
        DecodeRequest(prompt, max_tokens, stop, Sampling(temperature, seed=number, **settings))
        for number, prompt in enumerate(prompts)
    ]


def reference_log_probs(model, prompt: list[int], generated: list[int], temperature: float = 1.0) -> list[float]:
    """Log-probabilities of `generated` by one plain forward pass without a cache."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + generated])).logits[0].float() / temperature
    log_probs = torch.log_softmax(logits, dim=-1)
    return [log_probs[len(prompt) - 1 + i, token].item() for i, token in enumerate(generated)]


def test_greedy_tokens_are_those_of_transformers_generate(model, tokenizer, prompts):
    found = BatchDecoder(model, tokenizer).decode(requests(prompts))
    for prompt, generation in zip(prompts, found, strict=True):
        expected = model.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), max_new_tokens=12,
            do_sample=False, pad_token_id=0,
        )[0, len(prompt) :].tolist()  # fmt: skip
        assert generation.token_ids == expected


@pytest.mark.parametrize(("temperature", "scale"), [(0.0, 1.0), (1.0, 1.0), (0.7, 0.7)])
def test_log_probs_are_those_of_a_plain_forward_pass(model, tokenizer, prompts, temperature, scale):
    for prompt, generation in zip(
        prompts, BatchDecoder(model, tokenizer).decode(requests(prompts, temperature=temperature)), strict=True
    ):
        expected = reference_log_probs(model, prompt, generation.token_ids, scale)
        assert generation.log_probs == pytest.approx(expected, abs=1e-4)


def test_the_same_seed_gives_the_same_tokens_in_any_batch(model, tokenizer, prompts):
    wanted = requests(prompts, temperature=1.0)
    together = [g.token_ids for g in BatchDecoder(model, tokenizer).decode(wanted)]
    alone = [BatchDecoder(model, tokenizer).decode([request])[0].token_ids for request in wanted]
    narrow = [g.token_ids for g in BatchDecoder(model, tokenizer, max_rows=3).decode(wanted[::-1])][::-1]
    assert together == alone == narrow


def test_rows_join_and_leave_at_any_time_and_read_only_their_own_tokens(model, tokenizer, prompts, passes):
    """One more request after every second step; the batch never waits for a new one, nor reads anything twice."""
    wanted = requests(prompts, max_tokens=9, temperature=1.0)
    expected = [BatchDecoder(model, tokenizer).decode([request])[0] for request in wanted]
    found = {}
    for number, request in enumerate(wanted):
        request.max_tokens = 3 + number % 7
        request.finished = lambda generation, number=number: found.setdefault(number, generation)

    decoder = BatchDecoder(model, tokenizer, max_rows=8)
    passes.clear()
    for request in wanted:
        others = decoder.active
        decoder.admit([request])
        decoder.step()
        assert passes[-1] == [1] * others + [len(request.token_ids)]
        decoder.step()
    while decoder.active:
        decoder.step()
    for number, generation in found.items():
        assert generation.token_ids == expected[number].token_ids[: 3 + number % 7]
        assert generation.log_probs == pytest.approx(expected[number].log_probs[: 3 + number % 7], abs=1e-4)
    assert len(found) == len(wanted)
    generated = sum(len(generation.token_ids) for generation in found.values())
    assert sum(map(sum, passes)) == sum(map(len, prompts)) + generated - len(found)


@pytest.mark.parametrize("heads", [2, 4])
def test_packed_and_padded_passes_read_the_same(tokenizer, heads):
    """Rows of one to five pages that join and leave."""
    from parallelsearch.training.warm_start.policy import build_policy

    policy = build_policy(PolicyConfig(hidden_size=64, layers=2, heads=heads), tokenizer, seed=2)
    assert policy.config.num_key_value_heads == heads // 2
    choose = random.Random(4)
    lengths = [1, 63, 64, 65, 127, 128, 129, 300, 40, 200]
    wanted = requests([[choose.randrange(3, 300) for _ in range(length)] for length in lengths], 70, (), 1.0)
    decoder = BatchDecoder(policy, tokenizer, max_rows=4)
    assert isinstance(decoder._forward, PackedForward)
    packed = decoder.decode(wanted)
    decoder._forward = PaddedForward(policy)
    for one, other in zip(packed, decoder.decode(wanted), strict=True):
        assert one.token_ids == other.token_ids and one.log_probs == pytest.approx(other.log_probs, abs=1e-4)
    for request, generation in zip(wanted, packed, strict=True):
        expected = reference_log_probs(policy, request.token_ids, generation.token_ids)
        assert generation.log_probs == pytest.approx(expected, abs=1e-4)


def test_rows_that_join_read_no_more_than_a_pass_may_hold(model, tokenizer, passes):
    """By hand: 40 and 50 padded to 50 are 100 tokens, 60 would make them 180; 300 are too many, but go alone."""
    wanted = requests([[7] * length for length in (40, 50, 60, 300)], max_tokens=9)
    decoder = BatchDecoder(model, tokenizer)
    decoder._pass_tokens = 128
    expected = decoder.decode(wanted)
    passes.clear()
    found = decoder.decode(wanted)
    assert passes[:4] == [[40, 50], [1, 1, 60], [1, 1, 1, 300], [1, 1, 1, 1]]
    assert [g.token_ids for g in found] == [g.token_ids for g in expected]
    assert expected == BatchDecoder(model, tokenizer).decode(wanted)


def test_a_request_that_waits_to_join_forgets_what_was_read_with_other_weights(model, tokenizer, prompts):
    decoder, stop = BatchDecoder(model, tokenizer), ("e", "a", " ", ">")
    first = decoder.decode([DecodeRequest(prompts[0], 40, stop, Sampling(1.0, seed=1))])[0]
    made: list[Generation] = []
    longer = DecodeRequest(prompts[0] + first.token_ids + [7, 8, 9], 5, finished=made.append)
    decoder.admit([longer])
    weight, before = model.lm_head.weight, model.lm_head.weight.detach().clone()
    try:
        with torch.no_grad():
            weight.mul_(-1)
        decoder.forget()
        while decoder.active:
            decoder.step()
        expected = reference_log_probs(model, longer.token_ids, made[0].token_ids)
    finally:
        with torch.no_grad():
            weight.copy_(before)
    assert made[0].log_probs == pytest.approx(expected, abs=1e-4)


def test_an_idle_decoder_holds_no_keys_and_values(model, tokenizer, prompts):
    decoder = BatchDecoder(model, tokenizer)
    decoder.admit(requests(prompts, max_tokens=2))
    decoder.step()
    assert decoder._key_values.pools and all(pool.nbytes for pool in decoder._key_values.pools)
    decoder.step()
    assert not decoder.active and not decoder._key_values.pools


def test_other_seeds_give_other_tokens_and_no_seed_is_not_repeatable(model, tokenizer, prompts):
    decoder = BatchDecoder(model, tokenizer)
    drawn = {
        tuple(decoder.decode([DecodeRequest(prompts[0], 12, (), Sampling(1.0, seed=seed))])[0].token_ids)
        for seed in (1, 2, 3, None, None)
    }
    assert len(drawn) == 5


def test_temperatures_stops_and_limits_may_differ_within_a_batch(model, tokenizer, prompts):
    decoder = BatchDecoder(model, tokenizer)
    mixed = [
        DecodeRequest(prompts[0], 5, (), Sampling(0.0)),
        DecodeRequest(prompts[1], 9, ("x",), Sampling(1.0, seed=4)),
        DecodeRequest(prompts[2], 1, (), Sampling(2.0, 0.5, seed=5)),
    ]
    together = decoder.decode(mixed)
    assert [g.token_ids for g in together] == [decoder.decode([request])[0].token_ids for request in mixed]
    assert len(together[0].token_ids) == 5 and len(together[2].token_ids) == 1


def test_every_request_is_finished_once_and_in_its_place(model, tokenizer, prompts):
    told = []
    found = BatchDecoder(model, tokenizer, max_rows=4).decode(
        requests(prompts, temperature=1.0), lambda position, generation: told.append((position, generation))
    )
    assert sorted(position for position, _ in told) == list(range(len(prompts)))
    assert all(found[position] is generation for position, generation in told)


def test_draws_follow_the_distribution():
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]]).expand(20000, 4)
    chooser = TokenChooser([Sampling(1.0)] * 20000, torch.device("cpu"))
    tokens, _ = chooser.choose(logits, uniform_draws(Sampling(seed=1), 20000))
    shares = torch.bincount(tokens, minlength=4) / 20000
    assert torch.allclose(shares, torch.softmax(logits[0], dim=-1), atol=0.015)


def test_top_p_keeps_the_fewest_tokens_that_reach_it():
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]])).expand(4000, 4)
    draws = uniform_draws(Sampling(seed=2), 4000)
    for top_p, kept in ((0.4, {0}), (0.6, {0, 1}), (0.9, {0, 1, 2}), (1.0, {0, 1, 2, 3})):
        tokens, log_probs = TokenChooser([Sampling(1.0, top_p)] * 4000, torch.device("cpu")).choose(logits, draws)
        assert set(tokens.tolist()) == kept
        # The log-probability is that of the whole distribution, as a training forward pass computes it.
        assert torch.allclose(log_probs, logits[0, tokens])


def test_a_stop_string_is_found_across_tokens_and_kept(model, byte_tokenizer):
    """A model that recites a text token by token; the tag spans several tokens of this tokenizer."""
    text = " the river </search> is older"
    ids = byte_tokenizer.encode(text, add_special_tokens=False)
    tag = byte_tokenizer.encode("</search>", add_special_tokens=False)
    assert len(tag) > 3
    generation = BatchDecoder(Reciter(ids, len(byte_tokenizer)), byte_tokenizer).decode(
        [DecodeRequest([5], 40, ("</search>", "</answer>"))]
    )[0]
    assert generation.finish_reason == "stop_string"
    assert byte_tokenizer.decode(generation.token_ids) == " the river </search>"


@pytest.mark.parametrize(
    ("text", "stop", "expected", "reason"),
    [
        ("a </search> b", ("</search>", "</answer>"), "a </search>", "stop_string"),
        ("a </answer> b", ("</search>", "</answer>"), "a </answer>", "stop_string"),
        ("a > b </ search> c", ("</search>",), "a > b </ search> c<|end|>", "eos"),
        ("ab", ("</search>",), "ab<|end|>", "eos"),
        ("naïve café ☕ yes", ("é ☕",), "naïve café ☕", "stop_string"),
        ("one. two", (".",), "one.", "stop_string"),
        ("lines\nof text", ("\n",), "lines\n", "stop_string"),
    ],
)
def test_stop_strings_and_end_tokens(byte_tokenizer, text, stop, expected, reason):
    ids = [*byte_tokenizer.encode(text, add_special_tokens=False), byte_tokenizer.eos_token_id]
    generation = BatchDecoder(Reciter(ids, len(byte_tokenizer)), byte_tokenizer).decode([DecodeRequest([5], 60, stop)])[
        0
    ]
    assert byte_tokenizer.decode(generation.token_ids) == expected
    assert generation.finish_reason == reason


def test_a_stop_string_of_the_prompt_does_not_count(byte_tokenizer):
    prompt = byte_tokenizer.encode("say </search", add_special_tokens=False)
    ids = byte_tokenizer.encode("> and more", add_special_tokens=False)
    generation = BatchDecoder(Reciter(ids, len(byte_tokenizer), start=len(prompt)), byte_tokenizer).decode(
        [DecodeRequest(prompt, len(ids), ("</search>",))]
    )[0]
    assert generation.finish_reason == "length"


def test_stored_keys_and_values_change_nothing(model, tokenizer, prompts):
    """Second turns of episodes: the same tokens with and without what the first turn left behind."""
    stop = (">", " ", "e", "a")
    outcomes = []
    for stored in (0, 1 << 28):
        decoder = BatchDecoder(model, tokenizer, stored_bytes=stored)
        first = decoder.decode(requests(prompts, 30, stop, 1.0))
        longer = [
            prompt + generation.token_ids + [7, 8, 9, 10] * (1 + number % 3)
            for number, (prompt, generation) in enumerate(zip(prompts, first, strict=True))
        ]
        second = decoder.decode(requests(longer, 10, (), 1.0))
        outcomes.append(([g.token_ids for g in first], [g.token_ids for g in second]))
        for prompt, generation in zip(longer, second, strict=True):
            expected = reference_log_probs(model, prompt, generation.token_ids)
            assert generation.log_probs == pytest.approx(expected, abs=1e-4)
    assert outcomes[0] == outcomes[1]


def test_prefixes_are_found_used_once_and_forgotten(model, tokenizer, prompts, passes):
    decoder = BatchDecoder(model, tokenizer)
    first = decoder.decode([DecodeRequest(prompts[0], 40, ("e", "a", " ", ">"), Sampling(1.0, seed=1))])[0]
    assert first.finish_reason == "stop_string"
    longer = prompts[0] + first.token_ids + [7, 8, 9]
    passes.clear()
    decoder.decode([DecodeRequest(longer, 1)])
    decoder.decode([DecodeRequest(longer, 1)])
    assert passes == [[4], [len(longer)]]  # the last generated token and three new ones; then everything
    decoder.decode([DecodeRequest(prompts[0], 40, ("e", "a", " ", ">"), Sampling(1.0, seed=1))])
    decoder.forget()
    passes.clear()
    decoder.decode([DecodeRequest(longer, 1)])
    assert passes == [[len(longer)]]


class Reciter(torch.nn.Module):
    """A causal language model that says given tokens one after another, whatever it reads."""

    def __init__(self, token_ids: list[int], vocabulary: int, start: int = 1) -> None:
        super().__init__()
        self.head = torch.nn.Linear(1, vocabulary)
        self.token_ids, self.vocabulary, self.start = token_ids, vocabulary, start
        self.config = type("Config", (), {"model_type": "reciter", "eos_token_id": None})()

    def get_output_embeddings(self) -> torch.nn.Linear:
        return self.head

    def forward(self, *, input_ids, attention_mask, position_ids, past_key_values, use_cache, logits_to_keep):
        past_key_values.update(*[torch.zeros(*input_ids.shape, 1)[:, None]] * 2, 0)
        logits = torch.zeros(input_ids.shape[0], 1, self.vocabulary)
        for row, position in enumerate(position_ids[:, -1].tolist()):
            logits[row, 0, self.token_ids[(position - self.start + 1) % len(self.token_ids)]] = 50.0
        return type("Output", (), {"logits": logits})()
