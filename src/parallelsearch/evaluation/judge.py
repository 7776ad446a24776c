"""LLM-as-judge: whether an answer means the same as a golden one, asked of an OpenAI-compatible server, each pair once.

The rubric is ReSearch's (arXiv 2503.19470): semantic equivalence to the golden answers given the question, replied as
JSON with a rationale and a judgement. Replies are kept in a SQLite file, so that nothing is asked twice and a killed
run goes on. The key of the server comes from an environment variable only.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from parallelsearch.config import JudgeConfig
from parallelsearch.engines.openai_client import OpenAIClient
from parallelsearch.errors import EngineError
from parallelsearch.records import Episode

RUBRIC = (
    "You judge whether an answer to a question is correct. It is correct when it means the same as one of the golden"
    " answers; other words, more detail or another notation do not matter, a contradiction or a missing part does.\n\n"
    "Question: {question}\nGolden answers: {golden}\nAnswer to judge: {answer}\n\n"
    'Reply with JSON only: {{"rationale": "one sentence", "judgement": "correct" or "incorrect"}}'
)
_JUDGEMENT = re.compile(r'"judg(?:e)?ment"\s*:\s*"(correct|incorrect)"', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Pair:
    """What is judged."""

    question: str
    golden: tuple[str, ...]
    answer: str

    @property
    def message(self) -> str:
        """What the judge is told."""
        return RUBRIC.format(question=self.question, golden=" / ".join(self.golden), answer=self.answer)

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
    client = OpenAIClient(config, "the judge", "evaluation.judge")
    verdicts: dict[Pair, bool | None] = {}

    async def judge(pair: Pair) -> None:
        stored = replies.get(pair.key(config.model))
        if stored is None:
            async with free:
                stored = await client.reply(pair.message, temperature=0)
            replies.put(pair.key(config.model), stored)
        verdicts[pair] = read_judgement(stored)
        asked()

    await asyncio.gather(*map(judge, pairs))
    return verdicts
