"""An OpenAI-compatible server over a policy in Hugging Face layout: for agents elsewhere, and for simulated searches.

Of the published interface it knows /v1/models, /v1/completions and /v1/chat/completions, one choice a request and no
streaming; of vLLM's extensions those that an agent needs: prompts of token ids, replies with token ids, stop strings
that stay in the output. Keys of a request that it does not know are ignored, as other servers do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import uvicorn
from fastapi import Depends, FastAPI, HTTPException
from fastapi.exceptions import RequestValidationError
from fastapi.requests import Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from parallelsearch.engines.engine import Generation, Sampling
from parallelsearch.engines.hf import HFEngine
from parallelsearch.errors import EngineError, EngineRefused
from parallelsearch.files import write_json
from parallelsearch.secret import POLICY_TOKEN_VARIABLE
from parallelsearch.serving.access import is_authorised, required_token
from parallelsearch.serving.server import GRACE_SECONDS, KEEP_ALIVE_SECONDS, OrderlyServer, open_socket


class _Request(BaseModel):
    """What both kinds of completion share. The seed makes a reply repeatable, whatever else is asked at the time."""

    max_tokens: int | None = Field(None, ge=1)
    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    seed: int | None = None
    stop: str | list[str] | None = None
    n: int = Field(1, ge=1, le=1)
    stream: bool = False
    include_stop_str_in_output: bool = False

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_p, self.seed)

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class CompletionRequest(_Request):
    """Body of POST /v1/completions. `logprobs` of any number asks for those of the chosen tokens."""

    prompt: str | list[int]
    logprobs: int | None = None
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False
    skip_special_tokens: bool = True


class Message(BaseModel):
    role: str
    content: str


class ChatRequest(_Request):
    """Body of POST /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1)
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    max_completion_tokens: int | None = Field(None, ge=1)


class PolicyService:
    """The application over one engine; `name` is what the model is called, whatever name a request states."""

    def __init__(self, engine: HFEngine, name: str, token: str | None = None) -> None:
        """With `token`, every path but /health asks for `Authorization: Bearer TOKEN`."""
        self.engine, self.name, self.token = engine, name, token
        self.positions = getattr(engine.model.config, "max_position_embeddings", None)
        schema = None if token else "/openapi.json"
        self.app = FastAPI(title="parallelsearch policy", docs_url=None, redoc_url=None, openapi_url=schema)
        guarded = [Depends(self._authorised)]
        self.app.get("/health")(self.health)
        self.app.get("/v1/models", dependencies=guarded)(self.models)
        self.app.post("/v1/completions", dependencies=guarded)(self.complete)
        self.app.post("/v1/chat/completions", dependencies=guarded)(self.chat)
        self.app.exception_handler(HTTPException)(_refused)
        self.app.exception_handler(RequestValidationError)(_invalid)
        self.app.exception_handler(EngineError)(_failed)

    async def health(self) -> dict[str, str]:
        return {"status": "ok"}

    async def models(self) -> dict[str, Any]:
        entry = {"id": self.name, "object": "model", "owned_by": "parallelsearch", "max_model_len": self.positions}
        return {"object": "list", "data": [entry]}

    async def complete(self, request: CompletionRequest) -> dict[str, Any]:
        """Continues a text, or the token ids of one."""
        prompt = request.prompt
        ids = self.engine.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        made = await self._generate(ids, request, request.max_tokens or 16)
        text, stopped_by = self._text(made, request, request.skip_special_tokens)
        choice = {"index": 0, "text": text, "finish_reason": _reason(made), "stop_reason": stopped_by}
        if request.return_token_ids:
            choice |= {"token_ids": made.token_ids, "prompt_token_ids": ids}
        if request.logprobs is not None:
            choice["logprobs"] = self._log_probs(made, request.return_tokens_as_token_ids)
        return self._reply("text_completion", choice, ids, made)

    async def chat(self, request: ChatRequest) -> dict[str, Any]:
        """The assistant's next message; with continue_final_message, as vLLM has it, what follows the last one."""
        tokenizer = self.engine.tokenizer
        if not tokenizer.chat_template:
            raise EngineRefused(f"the tokenizer of {self.name} has no chat template; use /v1/completions.")
        messages = [message.model_dump() for message in request.messages]
        prompt = tokenizer.apply_chat_template(
            messages,
            tokenize=False,
            add_generation_prompt=request.add_generation_prompt and not request.continue_final_message,
            continue_final_message=request.continue_final_message,
        )
        ids = tokenizer.encode(prompt, add_special_tokens=False)
        room = (self.positions or 4096) - len(ids)
        made = await self._generate(ids, request, request.max_completion_tokens or request.max_tokens or room)
        text, stopped_by = self._text(made, request, skip_special_tokens=True)
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": _reason(made), "stop_reason": stopped_by}
        return self._reply("chat.completion", choice, ids, made)

    async def _authorised(self, request: Request) -> None:
        if not is_authorised(request, self.token):
            raise HTTPException(401, f"this server wants its token; set {POLICY_TOKEN_VARIABLE} to it.")

    async def _generate(self, ids: list[int], request: _Request, max_tokens: int) -> Generation:
        if request.stream:
            raise EngineRefused("this server does not stream; ask without stream.")
        if not ids or (self.positions and len(ids) + max_tokens > self.positions):
            raise EngineRefused(
                f"the prompt has {len(ids)} tokens and {max_tokens} are asked for; {self.name} takes a prompt of at"
                f" least 1, and {self.positions} in all."
            )
        vocabulary = self.engine.model.get_input_embeddings().weight.shape[0]
        if not all(0 <= token < vocabulary for token in ids):
            raise EngineRefused(f"the prompt has token ids outside 0 to {vocabulary - 1}.")
        return await self.engine.generate(ids, max_tokens=max_tokens, stop=request.stops, sampling=request.sampling)

    def _text(self, made: Generation, request: _Request, skip_special_tokens: bool) -> tuple[str, str | None]:
        """The text of a generation, and the stop string that ended it, cut off unless the request wants it kept."""
        ids = made.token_ids[:-1] if made.finish_reason == "eos" else made.token_ids
        text = self.engine.tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
        found = [(text.find(stop), stop) for stop in request.stops if stop in text]
        if made.finish_reason != "stop_string" or not found:
            return text, None
        start, stop = min(found)
        return text[: start + len(stop)] if request.include_stop_str_in_output else text[:start], stop

    def _log_probs(self, made: Generation, as_token_ids: bool) -> dict[str, Any]:
        """Of the chosen tokens alone, in the published form; at temperatures above 0 of the distribution there."""
        if as_token_ids:
            tokens = [f"token_id:{token}" for token in made.token_ids]
        else:
            tokens = [self.engine.tokenizer.decode([token]) for token in made.token_ids]
        tops = [{token: value} for token, value in zip(tokens, made.log_probs, strict=True)]
        return {"tokens": tokens, "token_logprobs": made.log_probs, "top_logprobs": tops}

    def _reply(self, kind: str, choice: dict[str, Any], prompt: list[int], made: Generation) -> dict[str, Any]:
        counts = {"prompt_tokens": len(prompt), "completion_tokens": len(made.token_ids)}
        return {
            "id": uuid4().hex,
            "object": kind,
            "created": int(time.time()),
            "model": self.name,
            "choices": [choice],
            "usage": counts | {"total_tokens": sum(counts.values())},
        }


def serve_policy(
    folder: Path,
    name: str,
    host: str,
    port: int,
    *,
    device: str = "cpu",
    max_rows: int = 128,
    ready_file: Path | None = None,
    announce: Callable[[str], None] = print,
    everybody: bool = False,
) -> None:
    """Serves the model in `folder` until SIGTERM or SIGINT. Port 0 takes a free one.

    When it answers, `ready_file` gets {"url"}, which ends in /v1; it is removed at the end. The token, if any, comes
    from the environment (PARALLELSEARCH_POLICY_TOKEN); a `host` that other machines reach needs one, unless
    `everybody` may ask. EngineError: no model. ConfigError: no token.
    """
    token = required_token(host, POLICY_TOKEN_VARIABLE, everybody)
    engine = HFEngine.open(folder, device=device, max_rows=max_rows)
    listening = open_socket(host, port)
    url = f"http://{host}:{listening.getsockname()[1]}/v1"
    settings = uvicorn.Config(
        PolicyService(engine, name, token).app,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    try:
        if ready_file:
            write_json(ready_file, {"url": url})
        announce(f"{name} at {url}")
        OrderlyServer(settings).run(sockets=[listening])
    finally:
        listening.close()
        engine.close()
        if ready_file:
            ready_file.unlink(missing_ok=True)


def _reason(made: Generation) -> str:
    return "length" if made.finish_reason == "length" else "stop"


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    faults = error.errors() if isinstance(error, RequestValidationError) else []
    said = "; ".join(f"{'.'.join(map(str, fault['loc'][1:]))}: {fault['msg']}" for fault in faults)
    return _error(400, said or str(error))


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, str(error.detail))


async def _failed(request: Request, error: Exception) -> JSONResponse:
    return _error(400 if isinstance(error, EngineRefused) else 500, str(error))


def _error(status: int, message: str) -> JSONResponse:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return JSONResponse({"error": {"message": message, "type": kind}}, status)
