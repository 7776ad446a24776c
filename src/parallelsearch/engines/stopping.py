"""When a generation is over: at an end token, at a stop string (also one that spans tokens), or at its token limit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from parallelsearch.engines.engine import FinishReason

_EXTRA_TOKENS = 4  # tokens without text that may stand among those of a stop string


class Stopping:
    """Stop conditions of one model and tokenizer.

    Only a token that holds the last character of a stop string can complete it, so that text is decoded for few tokens.
    """

    def __init__(self, model: Any, tokenizer: Any, vocabulary: int, device: torch.device) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._device = device
        self.end_ids = end_token_ids(getattr(model, "generation_config", None), model.config, tokenizer)
        self._pieces = [piece or "" for piece in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))]
        self._ends = torch.zeros(vocabulary, dtype=torch.bool, device=device)
        self._ends[[token for token in self.end_ids if token < vocabulary]] = True
        self._may_stop = cache(self._tokens_that_may_stop)

    def candidates(self, stops: Sequence[tuple[str, ...]]) -> torch.Tensor:
        """bool [vocabulary]: tokens after which some row with one of these sets of stop strings may be over."""
        return torch.stack([self._ends, *(self._may_stop(stop) for stop in sorted(set(stops)))]).any(dim=0)

    def reason(self, token_ids: Sequence[int], stop: tuple[str, ...]) -> FinishReason | None:
        """Why a generation ends with the last of `token_ids`, which are all its tokens so far; None if it goes on."""
        if token_ids[-1] in self.end_ids:
            return "eos"
        longest = max((len(string.encode()) for string in stop), default=0)
        tail = self._tokenizer.decode(
            token_ids[-(longest + _EXTRA_TOKENS) :], skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return "stop_string" if any(string in tail for string in stop) else None

    def _tokens_that_may_stop(self, stop: tuple[str, ...]) -> torch.Tensor:
        may_stop = torch.zeros(self._vocabulary, dtype=torch.bool, device=self._device)
        for string in stop:
            last = string[-1]
            if "!" <= last <= "~":  # stands for itself in the vocabularies of byte-level and sentence-piece tokenizers
                found = [token for token, piece in enumerate(self._pieces) if last in piece or piece == _byte(last)]
                may_stop[[token for token in found if token < self._vocabulary]] = True
            else:
                may_stop[:] = True
        return may_stop


def _byte(character: str) -> str:
    """How sentence-piece vocabularies spell a single byte."""
    return f"<0x{ord(character):02X}>"


def end_token_ids(*sources: Any) -> frozenset[int]:
    """The end tokens that model, generation settings or tokenizer name, in one set."""
    found: set[int] = set()
    for source in sources:
        ids = getattr(source, "eos_token_id", None)
        found.update([ids] if isinstance(ids, int) else ids or [])
    return frozenset(found)
