"""What every engine owes the episode loop, held against Transformers itself: ids, log-probabilities, stops, seeds.

The OpenAI engine speaks to `parallelsearch policy serve`, and to vLLM's own server where vLLM is installed.
"""

from __future__ import annotations

import asyncio
import importlib.util
import math
import os
import socket
import sys
import time
from contextlib import contextmanager

import httpx
import pytest
import torch

from parallelsearch.config import AgentConfig, ServerConfig
from parallelsearch.engines.engine import Sampling
from parallelsearch.engines.hf import HFEngine
from parallelsearch.engines.openai_engine import OpenAIEngine
from parallelsearch.engines.vllm import VllmEngine
from parallelsearch.evaluation.answering import answer_all
from parallelsearch.records import Question, Structure
from parallelsearch.training.process.child_process import end_child, start_child
from parallelsearch.training.process.simulator_process import served_policy
from parallelsearch.training.warm_start.policy import save_policy

GREEDY = Sampling()
PROMPT = [5, 9, 7, 20, 31]
needs_vllm = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")


@pytest.fixture(scope="module")
def policy(model, tokenizer, tmp_path_factory):
    """A small model with larger weights than usual at the start: greedy choices are no ties and no repetitions."""
    import copy

    sharper = copy.deepcopy(model)
    with torch.no_grad():
        for weights in sharper.parameters():
            if weights.dim() == 2:
                weights.mul_(6)
    folder = tmp_path_factory.mktemp("engines") / "policy"
    save_policy(sharper, tokenizer, folder)
    return folder


@pytest.fixture(scope="module")
def run():
    """Runs a coroutine in the one event loop that all engines of this module live in."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture(
    scope="module",
    params=["hf", "openai", pytest.param("vllm", marks=needs_vllm), pytest.param("vllm serve", marks=needs_vllm)],
)
def engine(request, policy, tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    if request.param == "hf":
        opened = HFEngine.open(policy, max_rows=8)
        yield opened
        opened.close()
    elif request.param == "openai":
        with served_policy(policy, folder, wait_seconds=120) as url:
            yield OpenAIEngine.open(ServerConfig(url=url, model="policy"), policy)
    elif request.param == "vllm":
        opened = VllmEngine.open(policy, max_rows=8, max_model_len=1024, dtype="float32")
        yield opened
        opened.close()
    else:
        with vllm_server(policy, folder) as url:
            yield OpenAIEngine.open(ServerConfig(url=url, model=str(policy)), policy)


@pytest.fixture(scope="module")
def reference(policy):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32)


@contextmanager
def vllm_server(policy, folder):
    """vLLM's own OpenAI-compatible server."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # Not `vllm serve`: it asks for a distribution of the name vllm, which the CPU build is not.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(policy)]
    command += ["--host", "127.0.0.1"]
    command += ["--port", str(port), "--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "8"]
    command += ["--logprobs-mode", "processed_logprobs", "--enforce-eager"]
    process = start_child(command, folder / "vllm.log", os.environ)
    try:
        end = time.monotonic() + 500
        while True:
            try:
                if httpx.get(f"http://127.0.0.1:{port}/health", timeout=2).is_success:
                    break
            except httpx.TransportError:
                pass
            assert process.poll() is None and time.monotonic() < end, (folder / "vllm.log").read_text()[-3000:]
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        end_child(process)


def generate(engine, tokens=24, stop=(), sampling=GREEDY, prompt=PROMPT):
    return engine.generate(prompt, max_tokens=tokens, stop=stop, sampling=sampling)


def log_probs_of(reference, prompt, tokens, temperature=1.0):
    with torch.inference_mode():
        logits = reference(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1].float()
    return torch.log_softmax(logits / temperature, -1).gather(1, torch.tensor(tokens)[:, None])[:, 0].tolist()


def test_greedy_decoding_is_that_of_transformers(engine, reference, run):
    for prompt in (PROMPT, [60, 61, 9], [100, 30, 30, 200, 7]):
        made = run(generate(engine, prompt=prompt))
        expected = reference.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False)[0, len(prompt) :]
        assert made.token_ids == expected.tolist()
        assert made.finish_reason == "length"
        assert made.log_probs == pytest.approx(log_probs_of(reference, prompt, made.token_ids), abs=2e-3)


def test_sampled_log_probabilities_are_of_the_distribution_at_the_temperature(engine, reference, run):
    made = run(generate(engine, sampling=Sampling(0.7, seed=3)))
    assert made.log_probs == pytest.approx(log_probs_of(reference, PROMPT, made.token_ids, 0.7), abs=2e-3)


def test_a_stop_string_across_tokens_is_found_and_kept(engine, run):
    """The stop string is the end of one token and the beginning of the next; nothing comes after the second."""
    decode, stops = engine.tokenizer.decode, 0
    for seed in range(6):
        free = run(generate(engine, 40, sampling=Sampling(1.0, seed=seed))).token_ids
        pieces = [decode([token]) for token in free]
        for position in range(2, len(free) - 1):
            left, right = pieces[position], pieces[position + 1]
            stop = left[-1:] + right[:1]
            if left and right and "\ufffd" not in stop and stop not in decode(free[: position + 1]):
                made = run(generate(engine, 40, (stop, "never said"), Sampling(1.0, seed=seed)))
                assert made.token_ids == free[: position + 2]
                assert made.finish_reason == "stop_string"
                stops += 1
                break
    assert stops >= 3


def test_end_tokens_end_and_are_kept(engine, run):
    async def many():
        return await asyncio.gather(*(generate(engine, 60, sampling=Sampling(2.0, seed=n)) for n in range(48)))

    end = engine.tokenizer.eos_token_id
    made = run(many())
    assert {generation.finish_reason for generation in made} == {"eos", "length"}
    for generation in made:
        assert (generation.token_ids[-1] == end) is (generation.finish_reason == "eos")
        assert end not in generation.token_ids[:-1]
        assert not any(math.isnan(value) for value in generation.log_probs)


QUESTIONS = [
    Question(f"q{n}", "d", "test", f"Which is older, city {n} or a river?", ("x",), "c", Structure.PARALLEL)
    for n in range(6)
]


def test_equal_seeds_give_equal_episodes_whatever_is_in_flight(engine, retriever, run):
    agent = AgentConfig(max_generation_tokens=12, max_search_turns=2, on_invalid="retry")

    def texts(in_flight, seed, questions=QUESTIONS):
        answering = answer_all(questions, engine, retriever, agent, temperature=1.0, seed=seed, in_flight=in_flight)
        return [[turn.text for turn in episode.turns] for episode in run(answering)]

    together = texts(6, 0)
    assert all(len(turns) == 3 for turns in together)
    assert texts(1, 0) == together
    assert texts(4, 0, QUESTIONS[:5]) == together[:5]
    assert texts(6, 1) != together
