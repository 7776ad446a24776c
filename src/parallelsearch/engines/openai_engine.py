"""An Engine over an OpenAI-compatible URL: vLLM's server, `parallelsearch policy serve`, and others with less."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parallelsearch.config import ServerConfig
from parallelsearch.engines.engine import Generation, Sampling
from parallelsearch.engines.openai_client import OpenAIClient
from parallelsearch.engines.openai_reply import read_generation
from parallelsearch.engines.stopping import end_token_ids
from parallelsearch.engines.token_folder import open_tokenizer
from parallelsearch.errors import EngineRefused

# What vLLM's server and `policy serve` understand beyond the published interface.
EXTENSIONS = {
    "include_stop_str_in_output": True,
    "return_token_ids": True,
    "return_tokens_as_token_ids": True,
    "skip_special_tokens": False,
    "spaces_between_special_tokens": False,
}


class OpenAIEngine:
    """Sends token ids to URL/completions, and takes token ids and log-probabilities from the reply.

    A server that refuses vLLM's extensions is asked without them from then on. A reply without token ids is text: it is
    tokenised here, so that the ids may differ from those the server chose, its log-probabilities are unknown (nan), and
    a stop string that the server cut off is put back (see openai_reply.py). Log-probabilities are the server's; vLLM's
    are of the distribution before temperature unless it was started with --logprobs-mode processed_logprobs.
    """

    def __init__(self, server: ServerConfig, tokenizer: Any, end_ids: frozenset[int], key: str) -> None:
        """`end_ids` are the tokens after which the model says no more; `key` is the server's configuration section."""
        self.tokenizer = tokenizer
        self._end_ids = end_ids
        self._client = OpenAIClient(server, f"the model {server.model}", key)
        self._extensions: dict[str, Any] = EXTENSIONS

    @classmethod
    def open(cls, server: ServerConfig, folder: Path, key: str = "evaluation.server") -> OpenAIEngine:
        """An engine with the tokenizer of a model folder, which has to be that of the served model."""
        tokenizer, generation_config = open_tokenizer(folder)
        return cls(server, tokenizer, end_token_ids(generation_config, tokenizer), key)

    async def generate(
        self, token_ids: Sequence[int], *, max_tokens: int, stop: Sequence[str], sampling: Sampling
    ) -> Generation:
        """See Engine.generate; the seed is sent modulo 2^31."""
        body: dict[str, Any] = {
            "prompt": list(token_ids),
            "max_tokens": max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "stop": list(stop),
            "logprobs": 1,
        }
        if sampling.seed is not None:
            body["seed"] = sampling.seed % 2**31
        extensions = self._extensions
        try:
            reply = await self._client.post("completions", body | extensions)
        except EngineRefused:
            if not extensions:
                raise
            reply = await self._client.post("completions", body)  # a request at fault in itself is refused again
            self._extensions = {}
        try:
            choice = reply["choices"][0]
            return read_generation(choice, self.tokenizer, stop, max_tokens, self._end_ids)
        except (KeyError, IndexError, TypeError):
            raise self._client.unreadable("completions", str(reply)) from None

    def close(self) -> None:
        """Nothing to end: the server lives on."""
