"""The interface of whatever generates text: token ids in, token ids and log-probabilities out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

FinishReason = Literal["eos", "stop_string", "length"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. Temperature 0 is greedy; a seed makes the draw repeatable, None draws afresh."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation. `token_ids` include an end token and the tokens of the stop string that ended it.

    `log_probs` holds one natural-log probability a token, of the distribution at the sampling temperature (at
    temperature 1 for greedy decoding) before any nucleus cut; nan where the engine does not know it.
    """

    token_ids: list[int]
    log_probs: list[float]
    finish_reason: FinishReason


class Engine(Protocol):
    """Generates text for one request at a time; requests in flight at once may be batched."""

    tokenizer: Any

    async def generate(
        self, token_ids: Sequence[int], *, max_tokens: int, stop: Sequence[str], sampling: Sampling
    ) -> Generation:
        """Continues `token_ids` by at most `max_tokens` tokens, up to the first end token or stop string.

        A stop string is found also where it spans several tokens, and is kept; nothing is generated after the token
        that completes it. Raises EngineError when no reply can be given.
        """
        ...
