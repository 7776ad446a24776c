"""One choice of an OpenAI-compatible completion as a Generation, whatever the server leaves out."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from parallelsearch.engines.engine import FinishReason, Generation
from parallelsearch.errors import EngineError

_TOKEN_ID = "token_id:"  # how vLLM writes a token as its id
_CLOSING_TAG = re.compile(r"</(\w+)>")


def read_generation(
    choice: dict[str, Any], tokenizer: Any, stop: Sequence[str], max_tokens: int, end_ids: frozenset[int]
) -> Generation:
    """The generation that `choice` describes; EngineError where it holds no token.

    Token ids come from the reply if it has them; else its text is tokenised and the log-probabilities are nan.
    """
    token_ids = _token_ids(choice)
    if token_ids is None:
        return _of_text(choice, tokenizer, stop, max_tokens)
    log_probs = (choice.get("logprobs") or {}).get("token_logprobs") or []
    known = [math.nan if value is None else float(value) for value in log_probs]
    if len(known) != len(token_ids):
        known = [math.nan] * len(token_ids)
    reason = _reason(choice, tokenizer.decode(token_ids, skip_special_tokens=False), stop)
    stopped_by = choice.get("stop_reason")
    ends = end_ids | {stopped_by} if isinstance(stopped_by, int) else end_ids
    if reason == "eos" and (not token_ids or token_ids[-1] not in ends):
        token_ids, known = [*token_ids, tokenizer.eos_token_id], [*known, math.nan]
    return _some(Generation(token_ids, known, reason))


def cut_off_stop(text: str, stop: Sequence[str]) -> str | None:
    """The stop string that a server cut off the end of `text`; None where the model ended by itself.

    The server does not say which. Of closing tags it is the one whose opening tag stands last and is still open.
    """
    opened = {}
    for string in stop:
        tag = _CLOSING_TAG.fullmatch(string)
        if tag:
            opened[string] = text.rfind(f"<{tag[1]}>")
    if not opened:
        return None
    latest = max(opened, key=lambda string: opened[string])
    return latest if opened[latest] > text.rfind(latest) else None


def _token_ids(choice: dict[str, Any]) -> list[int] | None:
    if choice.get("token_ids") is not None:
        return [int(token) for token in choice["token_ids"]]
    tokens = (choice.get("logprobs") or {}).get("tokens") or []
    if tokens and all(str(token).startswith(_TOKEN_ID) for token in tokens):
        return [int(token.removeprefix(_TOKEN_ID)) for token in tokens]
    return None


def _of_text(choice: dict[str, Any], tokenizer: Any, stop: Sequence[str], max_tokens: int) -> Generation:
    text = choice["text"]
    reason = _reason(choice, text, stop)
    said = choice.get("stop_reason")
    cut_off = said if isinstance(said, str) and said in stop else cut_off_stop(text, stop) if reason == "eos" else None
    if cut_off and not text.endswith(cut_off):
        text, reason = text + cut_off, "stop_string"
    token_ids = tokenizer.encode(text, add_special_tokens=False)
    if reason == "eos":
        token_ids.append(tokenizer.eos_token_id)
    if len(token_ids) > max_tokens:
        token_ids, reason = token_ids[:max_tokens], "length"
    return _some(Generation(token_ids, [math.nan] * len(token_ids), reason))


def _reason(choice: dict[str, Any], text: str, stop: Sequence[str]) -> FinishReason:
    if choice.get("finish_reason") == "length":
        return "length"
    return "stop_string" if any(string in text for string in stop) else "eos"


def _some(generation: Generation) -> Generation:
    if not generation.token_ids:
        raise EngineError("The server returned no token; see its log.")
    return generation
