"""LLM-as-judge: whether an answer means the same as a golden one, asked of an OpenAI-compatible server, each pair once.

The rubric is ReSearch's (arXiv 2503.19470): semantic equivalence to the golden answers given the question, replied as
JSON with a rationale and a judgement. Replies are kept in a SQLite file, so that nothing is asked twice and a killed
run goes on. The key of the server comes from an environment variable only.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from parallelsearch.config import JudgeConfig
from parallelsearch.errors import EngineError
from parallelsearch.records import Episode

RUBRIC = (
    "You judge whether an answer to a question is correct. It is correct when it means the same as one of the golden"
    " answers; other words, more detail or another notation do not matter, a contradiction or a missing part does.\n\n"
    "Question: {question}\nGolden answers: {golden}\nAnswer to judge: {answer}\n\n"
    'Reply with JSON only: {{"rationale": "one sentence", "judgement": "correct" or "incorrect"}}'
)
_JUDGEMENT = re.compile(r'"judg(?:e)?ment"\s*:\s*"(correct|incorrect)"', re.IGNORECASE)
ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class Pair:
    """What is judged."""

    question: str
    golden: tuple[str, ...]
    answer: str

    def key(self, model: str) -> str:
        content = json.dumps([model, RUBRIC, self.question, self.golden, self.answer], ensure_ascii=False)
        return hashlib.sha256(content.encode()).hexdigest()


class ReplyStore:
    """The replies of judges in a SQLite file; several processes may use it at once."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(path, timeout=60, isolation_level=None)
        self._database.execute("CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL)")

    def __enter__(self) -> ReplyStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()

    def get(self, key: str) -> str | None:
        row = self._database.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        return str(row[0]) if row else None

    def put(self, key: str, reply: str) -> None:
        self._database.execute("INSERT OR REPLACE INTO replies VALUES (?, ?)", (key, reply))


def judge_episodes(
    episodes: Sequence[Episode], config: JudgeConfig, store: Path, asked: Callable[[], None] = lambda: None
) -> list[bool | None]:
    """For each episode whether its answer was judged correct; None for an infrastructure failure.

    An episode without an answer is not correct, and nobody is asked. None, too, where the reply holds no judgement.
    Raises EngineError when the server does not answer, or never with a judgement; what was asked is kept.
    """
    pairs = {
        index: Pair(episode.question.text, tuple(episode.question.golden_answers), episode.answer)
        for index, episode in enumerate(episodes)
        if episode.answer
    }
    with ReplyStore(store) as replies:
        verdicts = asyncio.run(_judge_all(list(dict.fromkeys(pairs.values())), config, replies, asked))
    if verdicts and all(verdict is None for verdict in verdicts.values()):
        raise EngineError(
            f"the judge {config.model} at {config.url} gave no judgement in {len(verdicts)} replies;"
            " use a model that keeps to JSON."
        )
    failed = [episode.stop_reason.is_infrastructure_failure for episode in episodes]
    return [
        None if failed[index] else verdicts[pairs[index]] if index in pairs else False for index in range(len(episodes))
    ]


def read_judgement(reply: str) -> bool | None:
    """True for correct, False for incorrect, None for a reply that holds neither or both."""
    found = {judgement.lower() for judgement in _JUDGEMENT.findall(reply)}
    return found == {"correct"} if len(found) == 1 else None


async def _judge_all(
    pairs: Sequence[Pair], config: JudgeConfig, replies: ReplyStore, asked: Callable[[], None]
) -> dict[Pair, bool | None]:
    free = asyncio.Semaphore(config.in_flight)
    key = os.environ.get(config.key_variable, "")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    verdicts: dict[Pair, bool | None] = {}
    async with httpx.AsyncClient(headers=headers, timeout=config.timeout) as client:

        async def judge(pair: Pair) -> None:
            stored = replies.get(pair.key(config.model))
            if stored is None:
                async with free:
                    stored = await _ask(client, config, pair)
                replies.put(pair.key(config.model), stored)
            verdicts[pair] = read_judgement(stored)
            asked()

        await asyncio.gather(*map(judge, pairs))
    return verdicts


async def _ask(client: httpx.AsyncClient, config: JudgeConfig, pair: Pair) -> str:
    """The judge's reply. Raises EngineError where there is none."""
    url = f"{config.url.rstrip('/')}/chat/completions"
    message = RUBRIC.format(question=pair.question, golden=" / ".join(pair.golden), answer=pair.answer)
    body = {"model": config.model, "temperature": 0, "messages": [{"role": "user", "content": message}]}
    retrying = AsyncRetrying(
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.2, max=config.longest_wait),
        retry=retry_if_exception(_may_pass),
        reraise=True,
    )
    try:
        return await retrying(_post, client, url, body)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise EngineError(f"the judge at {url} did not answer ({reason}); check evaluation.judge.url.") from None


async def _post(client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> str:
    response = await client.post(url, json=body)
    response.raise_for_status()
    try:
        return str(response.json()["choices"][0]["message"]["content"])
    except (ValueError, KeyError, IndexError, TypeError):
        raise EngineError(
            f"{url} did not reply as an OpenAI-compatible server but with {response.text[:120]!r};"
            " evaluation.judge.url has to end before /chat/completions."
        ) from None


def _may_pass(error: BaseException) -> bool:
    """Failures that may be gone at the next attempt: the connection, too many requests, the server's own."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code in (408, 429) or error.response.status_code >= 500
    return isinstance(error, httpx.TransportError)
