"""The engine around the decoder: many callers at once, weights that change, failures, the end."""

from __future__ import annotations

import asyncio
import copy
import threading
import time

import pytest

from parallelsearch.engines.decoding.packed_forward import PackedForward
from parallelsearch.engines.engine import Sampling
from parallelsearch.engines.hf import HFEngine, attention_window
from parallelsearch.errors import DataError, EngineError

STOP = ("</search>", "</answer>")


@pytest.fixture
def engine(model, tokenizer):
    engine = HFEngine(model, tokenizer, max_rows=6)
    yield engine
    engine.close()


def ask(engine, number, tokens=10):
    return engine.generate([5 + number, 9, 7], max_tokens=tokens, stop=STOP, sampling=Sampling(1.0, seed=number))


def test_requests_in_flight_are_decoded_together(engine, passes):
    async def all_at_once():
        return await asyncio.gather(*(ask(engine, number) for number in range(15)))

    async def one_by_one():
        return [await ask(engine, number) for number in range(15)]

    together = asyncio.run(all_at_once())
    steps = len(passes)
    assert max(map(len, passes)) == 6
    assert [g.token_ids for g in together] == [g.token_ids for g in asyncio.run(one_by_one())]
    assert steps < (len(passes) - steps) / 2


def test_a_folder_is_opened(model, tokenizer, tmp_path):
    from parallelsearch.training.warm_start.policy import save_policy

    save_policy(model, tokenizer, tmp_path / "policy")
    opened = HFEngine.open(tmp_path / "policy")
    direct = HFEngine(model, tokenizer)
    assert asyncio.run(ask(opened, 1)) == asyncio.run(ask(direct, 1))
    opened.close()
    direct.close()
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(EngineError, match=r"config\.json"):
            HFEngine.open(folder)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DataError, match=r"holds no weights"):
        HFEngine.open(tmp_path)
    weights = tmp_path / "policy" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(EngineError, match="cannot be loaded"):
        HFEngine.open(tmp_path / "policy")


def test_what_a_model_cannot_look_back_on_is_refused(tokenizer):
    """Layers that see a window, or keep a state in the place of tokens."""
    from transformers import AutoModelForCausalLM, MistralConfig, Qwen3NextConfig

    small = {"vocab_size": 400, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    windowed = MistralConfig(**small, num_key_value_heads=1, intermediate_size=32, sliding_window=16)
    engine = HFEngine(AutoModelForCausalLM.from_config(windowed), tokenizer)
    with pytest.raises(EngineError, match="looks back 16 tokens"):
        engine.submit([5] * 10, max_tokens=7, stop=(), sampling=Sampling())
    assert len(engine.submit([5] * 10, max_tokens=6, stop=(), sampling=Sampling()).result(60).token_ids) <= 6
    engine.close()
    with pytest.raises(EngineError, match="linear_attention"):
        attention_window(Qwen3NextConfig(**small))


def test_new_weights_are_used_at_once_and_old_keys_are_not(model, tokenizer):
    """Continuing an episode after an update: the same tokens as with an engine that never saw the old weights."""
    import torch

    changing = copy.deepcopy(model)
    engine = HFEngine(changing, tokenizer)
    first = asyncio.run(engine.generate([5, 9], max_tokens=30, stop=("e", "a", " "), sampling=Sampling(1.0, seed=3)))
    assert first.finish_reason == "stop_string"
    with engine.exclusive(), torch.no_grad():
        for parameter in changing.parameters():
            parameter.mul_(1.3)
    longer = [5, 9, *first.token_ids, 11, 12]
    fresh = HFEngine(copy.deepcopy(changing), tokenizer)
    updated, expected = (
        asyncio.run(e.generate(longer, max_tokens=8, stop=(), sampling=Sampling())) for e in (engine, fresh)
    )
    assert updated.token_ids == expected.token_ids
    assert updated.log_probs == pytest.approx(expected.log_probs, abs=1e-5)
    engine.close()
    fresh.close()


def test_exclusive_use_is_not_starved_by_decoding(engine):
    """Requests keep coming; the block still gets its turn, and no token is decoded inside it."""
    futures = [
        engine.submit([5, number], max_tokens=200, stop=(), sampling=Sampling(1.0, seed=number)) for number in range(6)
    ]
    while not engine._decoder.active:
        time.sleep(0.001)
    entered = threading.Event()

    def claim():
        with engine.exclusive():
            before = [len(row.tokens) for row in engine._decoder._rows]
            time.sleep(0.1)
            assert before == [len(row.tokens) for row in engine._decoder._rows]
            entered.set()

    thread = threading.Thread(target=claim)
    thread.start()
    assert entered.wait(20)
    thread.join()
    assert all(len(future.result(60).token_ids) <= 200 for future in futures)


def test_a_failure_reaches_every_waiting_caller_and_the_engine_goes_on(engine, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("out of memory")

    async def all_at_once():
        return await asyncio.gather(*(ask(engine, number) for number in range(9)), return_exceptions=True)

    with monkeypatch.context() as broke:
        broke.setattr(PackedForward, "__call__", broken)
        failures = asyncio.run(all_at_once())
    assert all(isinstance(failure, EngineError) and "out of memory" in str(failure) for failure in failures)
    assert len(asyncio.run(ask(engine, 1)).token_ids) > 0


def test_a_caller_that_gives_up_does_not_disturb_the_others(engine):
    async def some_give_up():
        tasks = [asyncio.create_task(ask(engine, number, 40)) for number in range(8)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    outcomes = asyncio.run(some_give_up())
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes[::2])
    alone = [asyncio.run(ask(engine, number, 40)) for number in (1, 3, 5, 7)]
    assert [outcome.token_ids for outcome in outcomes[1::2]] == [generation.token_ids for generation in alone]


def test_closing_fails_what_is_not_done_and_what_comes_later(model, tokenizer):
    engine = HFEngine(model, tokenizer)
    future = engine.submit([5], max_tokens=1500, stop=(), sampling=Sampling(1.0, seed=1))
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        future.result(5)
    with pytest.raises(EngineError, match="closed"):
        engine.submit([5], max_tokens=1, stop=(), sampling=Sampling())


def test_empty_requests_are_refused(engine):
    for ids, tokens in (([], 5), ([5], 0)):
        with pytest.raises(EngineError, match="cannot be decoded"):
            engine.submit(ids, max_tokens=tokens, stop=(), sampling=Sampling())
