"""The two steps that every way of answering is made of: one generation, and one search for all sub-queries at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from parallelsearch.engines.engine import Engine, Generation, Sampling
from parallelsearch.errors import EngineError, RetrieverError
from parallelsearch.records import Hit, SubQuery

if TYPE_CHECKING:
    from parallelsearch.retrieval.retriever import Retriever

_TURN_STRIDE = 1_000_003  # keeps the seeds of an episode's generations apart


async def generate(
    engine: Engine, token_ids: list[int], budget: int, sampling: Sampling, turn: int, stop: Sequence[str]
) -> Generation:
    """Generation number `turn` of an episode, of at most `budget` tokens; each has a seed of its own.

    A reply that is longer, or has not one log-probability for each token, is an EngineError.
    """
    if sampling.seed is not None:
        sampling = replace(sampling, seed=(sampling.seed * _TURN_STRIDE + turn) % 2**63)
    generation = await engine.generate(token_ids, max_tokens=budget, stop=stop, sampling=sampling)
    if len(generation.token_ids) > budget or len(generation.token_ids) != len(generation.log_probs):
        raise EngineError(
            f"The engine returned {len(generation.token_ids)} tokens and {len(generation.log_probs)} log-probabilities"
            f" for at most {budget} tokens; check the engine's version."
        )
    return generation


def generation_text(generation: Generation, tokenizer: Any) -> str:
    """The text of a generation: all its tokens, special ones written out, without the end token that closed it."""
    token_ids = generation.token_ids
    if generation.finish_reason == "eos":
        token_ids = token_ids[:-1]
    return tokenizer.decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


async def search(texts: Sequence[str], retriever: Retriever, top_k: int) -> tuple[tuple[SubQuery, ...], float]:
    """Each of `texts` with its `top_k` best passages, and the seconds it took: one call for all different ones."""
    different = list(dict.fromkeys(texts))
    started = time.perf_counter()
    results = await retriever.search(different, top_k)
    if len(results) != len(different):
        raise RetrieverError(f"The retriever returned {len(results)} result lists for {len(different)} queries.")
    hits: dict[str, list[Hit]] = dict(zip(different, results, strict=True))
    found = tuple(SubQuery(text, tuple(hits[text][:top_k])) for text in texts)
    return found, time.perf_counter() - started


def failure_sentence(failure: Exception) -> str:
    """What an episode keeps of an exception."""
    return f"{type(failure).__name__}: {failure}"
