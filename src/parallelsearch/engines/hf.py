"""An Engine over a local Hugging Face causal language model. Requests in flight at once are decoded together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parallelsearch.engines.decoding.batch_decoder import BatchDecoder, DecodeRequest
from parallelsearch.engines.engine import Generation, Sampling
from parallelsearch.errors import EngineError
from parallelsearch.model_folder import SAFE, SAFE_TOKENIZER, require_safetensors


class HFEngine:
    """Runs a BatchDecoder in a thread of its own, which ends with `close` or with the program."""

    def __init__(self, model: Any, tokenizer: Any, *, max_rows: int = 128, stored_bytes: int = 1 << 29) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self._window = attention_window(model.config)
        self._decoder = BatchDecoder(model, tokenizer, max_rows=max_rows, stored_bytes=stored_bytes)
        self._waiting: list[tuple[DecodeRequest, Future[Generation]]] = []
        self._flying: dict[int, Future[Generation]] = {}
        self._changed = threading.Condition()
        self._decoding = threading.Lock()
        self._claims = 0  # callers that hold or wait for exclusive use
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="hf-engine", daemon=True)
        self._thread.start()

    @classmethod
    def open(cls, folder: Path, *, device: str = "cpu", max_rows: int = 128) -> HFEngine:
        """Loads model and tokenizer from a folder in Hugging Face layout. An unreadable one is an EngineError.

        Weights that are no safetensors are a DataError.
        """
        from safetensors import SafetensorError
        from transformers import AutoModelForCausalLM, AutoTokenizer

        if not (Path(folder) / "config.json").is_file():
            raise EngineError(f"{folder} holds no model (config.json is missing); train the policy first.")
        require_safetensors(Path(folder))
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, **SAFE_TOKENIZER)
            model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", **SAFE)
            model.to(device)
        except (OSError, ValueError, SafetensorError) as error:
            raise EngineError(f"The model in {folder} cannot be loaded: {' '.join(str(error).split())}") from error
        return cls(model, tokenizer, max_rows=max_rows)

    async def generate(
        self, token_ids: Sequence[int], *, max_tokens: int, stop: Sequence[str], sampling: Sampling
    ) -> Generation:
        """See Engine.generate."""
        return await asyncio.wrap_future(self.submit(token_ids, max_tokens=max_tokens, stop=stop, sampling=sampling))

    def submit(
        self, token_ids: Sequence[int], *, max_tokens: int, stop: Sequence[str], sampling: Sampling
    ) -> Future[Generation]:
        """Like `generate`, for callers without an event loop."""
        if not token_ids or max_tokens < 1:
            raise EngineError(f"A request of {len(token_ids)} tokens for {max_tokens} new ones cannot be decoded.")
        if self._window and len(token_ids) + max_tokens > self._window:
            raise EngineError(
                f"The model looks back {self._window} tokens; a request of {len(token_ids)} tokens for {max_tokens} new"
                " ones is longer: lower agent.max_prompt_tokens or agent.max_response_tokens, or use vLLM."
            )
        future: Future[Generation] = Future()
        request = DecodeRequest(list(token_ids), max_tokens, tuple(stop), sampling)
        request.finished = lambda generation: self._deliver(request, generation)
        with self._changed:
            if self._closed:
                raise EngineError("The engine is closed; open it again.")
            self._waiting.append((request, future))
            self._changed.notify()
        return future

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """While the block runs, no token is decoded: the place to change the weights of the model."""
        with self._changed:
            self._claims += 1
        try:
            with self._decoding:
                yield
                self._decoder.forget()
        finally:
            with self._changed:
                self._claims -= 1
                self._changed.notify()

    def close(self) -> None:
        """Ends the thread; requests that are not done fail with an EngineError."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._has_work)
                if self._closed:
                    self._fail(EngineError("The engine was closed."))
                    return
                admitted = []
                if self._waiting and self._decoder.room:
                    room = self._decoder.room
                    self._waiting = [pair for pair in self._waiting if not pair[1].cancelled()]
                    admitted, self._waiting = self._waiting[:room], self._waiting[room:]
                    self._flying.update({id(request): future for request, future in admitted})
            try:
                with self._decoding:
                    if admitted:
                        self._decoder.admit([request for request, _ in admitted])
                    self._decoder.step()
            except Exception as error:
                with self._changed, self._decoding:
                    self._decoder.reset()
                    self._fail(EngineError(f"Decoding failed: {type(error).__name__}: {error}"))

    def _has_work(self) -> bool:
        return self._closed or (not self._claims and bool(self._waiting or self._decoder.active))

    def _deliver(self, request: DecodeRequest, generation: Generation) -> None:
        future = self._flying.pop(id(request))
        if future.set_running_or_notify_cancel():
            future.set_result(generation)

    def _fail(self, error: EngineError) -> None:
        """Fails every request that is not done."""
        futures = [*self._flying.values(), *(future for _, future in self._waiting)]
        self._flying, self._waiting = {}, []
        for future in futures:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)


def attention_window(config: Any) -> int | None:
    """Tokens that each layer of a model sees (None: all). Layers that keep something else are an EngineError."""
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if other := sorted(kinds - {"full_attention", "sliding_attention"}):
        raise EngineError(f"Models with layers of {', '.join(other)} are not decoded by this engine; use vLLM.")
    return getattr(config, "sliding_window", None)
