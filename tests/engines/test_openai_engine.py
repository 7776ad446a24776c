"""What the OpenAI engine does where a server knows less than vLLM's, is busy, or is not one at all."""

from __future__ import annotations

import asyncio
import math
import time

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from served import served

from parallelsearch.config import ServerConfig
from parallelsearch.engines.engine import Sampling
from parallelsearch.engines.openai_engine import EXTENSIONS, OpenAIEngine
from parallelsearch.engines.openai_reply import cut_off_stop, read_generation
from parallelsearch.errors import EngineError

STOP = ("</search>", "</answer>")
PLAIN = {"model", "prompt", "max_tokens", "temperature", "top_p", "stop", "logprobs", "seed"}


class PlainServer:
    """Knows the published interface alone, refuses other keys, and gives `replies` one after another."""

    def __init__(self, *replies: tuple[int, dict, dict]) -> None:
        self.replies = list(replies)
        self.bodies: list[dict] = []
        self.times: list[float] = []
        self.keys: list[str | None] = []
        self.app = FastAPI()
        self.app.post("/v1/completions")(self.complete)

    async def complete(self, request: Request) -> JSONResponse:
        body = await request.json()
        self.times.append(time.monotonic())
        if unknown := set(body) - PLAIN:
            return JSONResponse({"error": {"message": f"Unrecognized request arguments: {sorted(unknown)}"}}, 400)
        self.bodies.append(body)
        self.keys.append(request.headers.get("authorization"))
        status, value, headers = self.replies.pop(0)
        return JSONResponse(value, status, headers)


def choice(text: str, reason: str = "stop", **more) -> tuple[int, dict, dict]:
    return 200, {"choices": [{"text": text, "finish_reason": reason, **more}]}, {}


def asked(server: PlainServer, tokenizer, times: int = 1, **settings):
    """What an engine makes of the server's replies."""

    async def ask(engine):
        made = []
        for seed in range(times):
            made.append(
                await engine.generate([5, 6], max_tokens=40, stop=STOP, sampling=Sampling(0.5, 0.9, 2**31 + seed))
            )
        return made

    with served(server.app) as url:
        config = ServerConfig(url=f"{url}/v1", model="some-model", **settings)
        engine = OpenAIEngine(config, tokenizer, frozenset([tokenizer.eos_token_id]), "evaluation.server")
        return asyncio.run(ask(engine))


def test_a_server_without_extensions_is_asked_without_them_and_its_text_is_tokenised(byte_tokenizer) -> None:
    server = PlainServer(choice("<search> Oslo "), choice("I stop here"), choice("and so on", "length"))
    first, second, third = asked(server, byte_tokenizer, 3)
    assert byte_tokenizer.decode(first.token_ids) == "<search> Oslo </search>"
    assert first.finish_reason == "stop_string"
    assert second.token_ids == [*byte_tokenizer.encode("I stop here"), byte_tokenizer.eos_token_id]
    assert (second.finish_reason, third.finish_reason) == ("eos", "length")
    assert len(first.log_probs) == len(first.token_ids) and all(math.isnan(value) for value in first.log_probs)
    assert len(server.times) == 4  # refused once, never asked so again
    assert server.bodies[0] == {
        "model": "some-model",
        "prompt": [5, 6],
        "max_tokens": 40,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": list(STOP),
        "logprobs": 1,
        "seed": 0,
    }


@pytest.mark.parametrize(
    ("text", "cut_off"),
    [
        ("<think> a </think> <search> Oslo ", "</search>"),
        ("<search> a </search> <answer> b", "</answer>"),
        ("<search> a <answer> b", "</answer>"),
        ("<answer> b </answer>", None),
        ("nothing at all", None),
        ("</search> <think>", None),
    ],
)
def test_which_stop_string_was_cut_off(text: str, cut_off: str | None) -> None:
    assert cut_off_stop(text, STOP) == cut_off
    assert cut_off_stop(text, ("\n",)) is None


def test_ids_written_as_tokens_are_read_and_a_missing_end_token_is_added(byte_tokenizer) -> None:
    ids = byte_tokenizer.encode("so be it")
    tokens = {"tokens": [f"token_id:{i}" for i in ids], "token_logprobs": [-0.25] * len(ids)}
    value = {"text": "so be it", "finish_reason": "stop", "logprobs": tokens}
    made = read_generation(value, byte_tokenizer, STOP, 40, frozenset([byte_tokenizer.eos_token_id]))
    assert made.token_ids == [*ids, byte_tokenizer.eos_token_id]
    assert made.log_probs[:-1] == [-0.25] * len(ids) and math.isnan(made.log_probs[-1])


def test_a_busy_server_is_asked_again_when_it_says(byte_tokenizer) -> None:
    busy = (429, {"error": {"message": "later"}}, {"Retry-After": "1.5"})
    server = PlainServer(busy, (503, {}, {}), choice("yes"))
    (made,) = asked(server, byte_tokenizer, longest_wait=3)
    assert byte_tokenizer.decode(made.token_ids[:-1]) == "yes"
    # [0] is the request with extensions, [1] the first without.
    assert server.times[2] - server.times[1] >= 1.5
    assert set(server.bodies[0]).isdisjoint(EXTENSIONS)


def test_the_key_is_sent_and_a_refused_one_names_its_variable(byte_tokenizer, monkeypatch) -> None:
    monkeypatch.setenv("MY_KEY", "secret")
    server = PlainServer(choice("yes"), (401, {"error": {"message": "bad key"}}, {}))
    asked(server, byte_tokenizer, key_variable="MY_KEY")
    assert server.keys == ["Bearer secret"]
    with pytest.raises(EngineError, match=r"status 401: .*bad key.*environment variable MY_KEY") as refusal:
        asked(server, byte_tokenizer, key_variable="MY_KEY")
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ((200, {"answer": 42}, {}), r"did not reply as an OpenAI-compatible server but with .*42"),
        ((400, {"error": {"message": "prompt too long"}}, {}), r"some-model at http.* \(status 400: .*prompt too long"),
        (choice("", "length"), "returned no token"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(byte_tokenizer, reply, says: str) -> None:
    with pytest.raises(EngineError, match=says):
        asked(PlainServer(reply), byte_tokenizer)


def test_a_server_that_is_not_there_is_an_engine_error(byte_tokenizer) -> None:
    config = ServerConfig(url="http://127.0.0.1:9/v1", model="m", longest_wait=0.01)
    engine = OpenAIEngine(config, byte_tokenizer, frozenset(), "evaluation.server")
    with pytest.raises(EngineError, match=r"did not answer .*check evaluation\.server\.url"):
        asyncio.run(engine.generate([5], max_tokens=1, stop=(), sampling=Sampling()))
