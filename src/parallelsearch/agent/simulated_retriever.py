"""ZeroSearch (arXiv 2505.04588): a language model in the place of the search engine while an agent is trained.

The model knows the question and its golden answer, and writes the documents of a search: useful ones, or, the more
often the longer the training lasts, ones that do not help. What it writes is never checked for truth.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Sequence

from parallelsearch.config import SimulatorConfig
from parallelsearch.engines.openai_client import OpenAIClient
from parallelsearch.errors import EngineError, RetrieverError
from parallelsearch.records import Hit, Passage, Question

_TASK = (
    "You are a search engine. Write {documents} short documents that a search for the query finds, about {words} words"
    " each, like pieces of encyclopedia articles."
)
_USEFUL = " The documents must be useful: they state the facts that lead from the question to its answer."
_NOISY = " The documents must be useless: they are about the query, but neither state the answer nor hint at it."
_CONTENT = "\n\nQuestion: {question}\nAnswer: {answer}\nQuery: {query}\n\nBegin every document with its number:"
_BEGIN = "Doc 1:"  # the reply is made to begin so, which also a small model goes on with
_NUMBER = re.compile(r"^[ \t*#\[(]*(?:doc(?:ument)?[ \t]*)?(\d{1,2})[ \t]*[\])*]*[ \t]*[:.)][ \t*]*", re.I | re.M)


def noise_share(step: int, steps: int, config: SimulatorConfig) -> float:
    """The share of searches that find useless documents in training step `step` of `steps`, counted from 1.

    p_i = p_s + (b^(i/m) - 1) / (b - 1) * (p_e - p_s), the paper's equation of the curriculum.
    """
    grown = (config.base ** (step / steps) - 1) / (config.base - 1)
    return config.p_start + grown * (config.p_end - config.p_start)


def simulator_message(question: Question, query: str, useful: bool, config: SimulatorConfig) -> str:
    """What the simulating model is told for one query."""
    task = _TASK.format(documents=config.documents, words=config.words)
    answer = " or ".join(question.golden_answers)
    content = _CONTENT.format(question=question.text, answer=answer, query=query)
    form = "".join(f"\nDoc {number}: ..." for number in range(1, config.documents + 1))
    return task + (_USEFUL if useful else _NOISY) + content + form


def read_documents(reply: str, documents: int) -> list[str]:
    """The first `documents` texts of a reply, which are numbered from 1 on; RetrieverError where there are fewer."""
    marks = list(_NUMBER.finditer(reply))
    ends = [*(mark.start() for mark in marks[1:]), len(reply)]
    found: list[str] = []
    for mark, end in zip(marks, ends, strict=False):
        text = " ".join(reply[mark.end() : end].split())
        if text and int(mark[1]) == len(found) + 1:
            found.append(text)
    if len(found) < documents:
        raise RetrieverError(
            f"The simulated search gave {len(found)} of {documents} documents: {reply[:120]!r}; raise"
            " training.simulator.max_tokens or take a larger model."
        )
    return found[:documents]


class SimulatedRetriever:
    """The searches of one episode. Equal seeds draw the same kinds of documents, and the same words from one server.

    `noise` is the probability that the documents of a search are useless. The passages have no place in a corpus: their
    ids count down from -1, their title is the query, and their score is the reciprocal of their rank.
    """

    def __init__(
        self, client: OpenAIClient, question: Question, config: SimulatorConfig, noise: float, seed: int
    ) -> None:
        self._client, self._question, self._config = client, question, config
        self._noise = noise
        self._draws = random.Random(seed)
        self._written = 0

    async def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """For each query the first `top_k` documents that the model writes. Raises RetrieverError."""
        drawn = [(query, self._draws.random() > self._noise, self._draws.getrandbits(31)) for query in queries]
        replies = await asyncio.gather(*(self._write(*one) for one in drawn))
        return [self._hits(query, texts[:top_k]) for query, texts in zip(queries, replies, strict=True)]

    async def _write(self, query: str, useful: bool, seed: int) -> list[str]:
        config = self._config
        message = simulator_message(self._question, query, useful, config)
        try:
            reply = await self._client.reply(
                message, _BEGIN, max_tokens=config.max_tokens, temperature=config.temperature, seed=seed
            )
        except EngineError as error:
            raise RetrieverError(str(error)) from error
        return read_documents(reply if _NUMBER.match(reply) else f"{_BEGIN} {reply}", config.documents)

    def _hits(self, query: str, texts: Sequence[str]) -> list[Hit]:
        first = self._written
        self._written += len(texts)
        return [Hit(Passage(-first - rank, query, text), 1 / rank) for rank, text in enumerate(texts, 1)]
