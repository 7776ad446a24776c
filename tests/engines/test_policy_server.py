"""The server over a policy as clients of the OpenAI kind see it; its engine is the real one."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from parallelsearch.engines.engine import Sampling
from parallelsearch.engines.hf import HFEngine
from parallelsearch.engines.policy_server import PolicyService


@pytest.fixture(scope="module")
def engine(model, tokenizer):
    engine = HFEngine(model, tokenizer)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def post(engine):
    app = PolicyService(engine, "tiny").app

    def ask(path: str, **body: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://policy") as client:
                return await client.post(path, json={"model": "tiny", **body})

        return asyncio.run(send())

    return ask


def generated(engine, ids, tokens, stop=(), **sampling):
    return asyncio.run(engine.generate(ids, max_tokens=tokens, stop=stop, sampling=Sampling(**sampling)))


def test_a_text_is_continued_as_the_engine_does(post, engine) -> None:
    ids = engine.tokenizer.encode("Oslo is the")
    made = generated(engine, ids, 16, temperature=0.7, seed=4)
    reply = post("/v1/completions", prompt="Oslo is the", temperature=0.7, seed=4, logprobs=1).json()
    (choice,) = reply["choices"]
    assert choice["text"] == engine.tokenizer.decode(made.token_ids, skip_special_tokens=True)
    assert choice["finish_reason"] == "length" and "token_ids" not in choice
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(made.log_probs, abs=1e-5)
    assert reply["usage"] == {"prompt_tokens": len(ids), "completion_tokens": 16, "total_tokens": len(ids) + 16}


def test_a_stop_string_is_cut_off_unless_it_is_wanted(post, engine) -> None:
    free = post("/v1/completions", prompt=[9, 8, 7], temperature=1, seed=1, max_tokens=30).json()["choices"][0]["text"]
    stop = free[5:8]
    before = free[: free.index(stop)]
    body = {"prompt": [9, 8, 7], "temperature": 1, "seed": 1, "max_tokens": 30, "stop": stop}
    (cut,) = post("/v1/completions", **body).json()["choices"]
    (kept,) = post("/v1/completions", **body, include_stop_str_in_output=True).json()["choices"]
    assert (cut["text"], cut["finish_reason"], cut["stop_reason"]) == (before, "stop", stop)
    assert kept["text"] == before + stop


def test_a_conversation_goes_through_the_chat_template(post, engine) -> None:
    prompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    ids = engine.tokenizer.encode(prompt)
    expected = engine.tokenizer.decode(generated(engine, ids, 12).token_ids, skip_special_tokens=True)
    body = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0}
    for key in ("max_tokens", "max_completion_tokens"):
        (choice,) = post("/v1/chat/completions", **body, **{key: 12}).json()["choices"]
        assert choice["message"] == {"role": "assistant", "content": expected}


def test_a_begun_reply_is_continued(post, engine) -> None:
    ids = engine.tokenizer.encode("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nDoc 1:")
    expected = engine.tokenizer.decode(generated(engine, ids, 9).token_ids, skip_special_tokens=True)
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Doc 1:"}]
    more = {"add_generation_prompt": False, "continue_final_message": True, "temperature": 0, "max_tokens": 9}
    assert (
        post("/v1/chat/completions", messages=messages, **more).json()["choices"][0]["message"]["content"] == expected
    )


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"prompt": [5], "stream": True}, "does not stream"),
        ({"prompt": []}, "takes a prompt of at least 1"),
        ({"prompt": [5] * 2040}, "2048 in all"),
        ({"prompt": [5, 10**6]}, "outside 0 to"),
        ({"prompt": [5], "temperature": -1}, "temperature: Input should be greater than or equal to 0"),
        ({}, "prompt: Field required"),
    ],
)
def test_a_request_at_fault_is_refused_with_a_reason(post, body: dict, says: str) -> None:
    reply = post("/v1/completions", **body)
    assert reply.status_code == 400
    assert says in reply.json()["error"]["message"]
