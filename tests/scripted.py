"""Stand-ins at the boundaries of the episode loop: an engine that says given texts, retrievers that record or fail."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

from parallelsearch.engines.engine import Generation, Sampling
from parallelsearch.errors import EngineError, RetrieverError
from parallelsearch.records import Hit, Passage

FAILS = "(fails)"  # the reply of an AnsweringEngine that breaks down
WORDS = "the a of in was born city river capital country question answer which is older than mountain lake"


class ScriptedEngine:
    """Says the given texts one after another and records what it was asked. Obeys max_tokens; finds no stop strings."""

    def __init__(
        self, tokenizer, texts: Sequence[str], *, end_token: bool = False, fails_at: int | None = None
    ) -> None:
        self.tokenizer = tokenizer
        self.inputs: list[list[int]] = []
        self.budgets: list[int] = []
        self.samplings: list[Sampling] = []
        self._texts = list(texts)
        self._end_token = end_token
        self._fails_at = fails_at

    async def generate(
        self, token_ids: Sequence[int], *, max_tokens: int, stop: Sequence[str], sampling: Sampling
    ) -> Generation:
        if len(self.inputs) == self._fails_at:
            raise EngineError("the engine is out of order")
        text = self._texts[len(self.inputs)]
        self.inputs.append(list(token_ids))
        self.budgets.append(max_tokens)
        self.samplings.append(sampling)
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        reason = "stop_string" if text.endswith(tuple(stop)) else "eos"
        if reason == "eos" and self._end_token:
            ids.append(self.tokenizer.eos_token_id)
        elif reason == "eos":
            reason = "length"
        if len(ids) > max_tokens:
            ids, reason = ids[:max_tokens], "length"
        return Generation(ids, [-0.5] * len(ids), reason)


class WordRetriever:
    """Ranks passages by the number of words they share with a query, and records its calls."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.calls: list[list[str]] = []
        self._passages = [(passage, set(f"{passage.title} {passage.text}".lower().split())) for passage in passages]

    async def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        self.calls.append(list(queries))
        results = []
        for query in queries:
            words = set(query.lower().split())
            ranked = sorted(self._passages, key=lambda item: (-len(words & item[1]), item[0].id))
            results.append([Hit(passage, float(len(words & found))) for passage, found in ranked[:top_k]])
        return results


class FailingRetriever:
    """Fails at the given call, with a text that must never reach the model."""

    def __init__(self, inner, fails_at: int, error: Exception | None = None) -> None:
        self._inner, self._fails_at, self._calls = inner, fails_at, 0
        self._error = error or RetrieverError("execution timed out at http://node7:8000")

    async def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        self._calls += 1
        if self._calls > self._fails_at:
            raise self._error
        return await self._inner.search(queries, top_k)


class AnsweringEngine:
    """Answers by what stands in the last lines of a prompt, for strategies that ask several things at once.

    A reply waits for its gate where it has one. `most_at_once` counts the requests that were in flight together.
    """

    def __init__(self, tokenizer, replies: Mapping[str, str], gates: Mapping[str, asyncio.Event] | None = None) -> None:
        self.tokenizer = tokenizer
        self.prompts: list[str] = []
        self.seeds: dict[str, int | None] = {}
        self.most_at_once = self._flying = 0
        self._replies, self._gates = replies, gates or {}

    async def generate(
        self, token_ids: Sequence[int], *, max_tokens: int, stop: Sequence[str], sampling: Sampling
    ) -> Generation:
        prompt = self.tokenizer.decode(token_ids)
        self.prompts.append(prompt)
        end = prompt[prompt.rindex("Question: ") :]
        [key] = [key for key in self._replies if key in end]
        self.seeds[key] = sampling.seed
        self._flying += 1
        self.most_at_once = max(self.most_at_once, self._flying)
        try:
            await asyncio.sleep(0)
            if key in self._gates:
                await self._gates[key].wait()
            if self._replies[key] == FAILS:
                raise EngineError("the engine is out of order")
        finally:
            self._flying -= 1
        ids = self.tokenizer.encode(self._replies[key], add_special_tokens=False)
        return Generation(ids, [-0.5] * len(ids), "length")


class GatedRetriever:
    """Finds what `inner` finds; announces each query in `asked`, and holds a query back until its gate opens."""

    def __init__(self, inner) -> None:
        self.calls: list[list[str]] = []
        self.most_at_once = self._flying = 0
        self._inner = inner
        self.gates: dict[str, asyncio.Event] = {}
        self.asked: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        self.calls.append(list(queries))
        self._flying += 1
        self.most_at_once = max(self.most_at_once, self._flying)
        try:
            for query in queries:
                self.asked[query].set()
            for query in queries:
                if query in self.gates:
                    await self.gates[query].wait()
            return await self._inner.search(queries, top_k)
        finally:
            self._flying -= 1
