"""Direct inference: the model answers from what it knows, without a search (a baseline of Search-R1)."""

from __future__ import annotations

from parallelsearch.agent.protocol import inert
from parallelsearch.records import Question
from parallelsearch.strategies.prompted import PromptedEpisode
from parallelsearch.strategies.reading import short_answer

PROMPT = "Answer the question. Give only the answer, in a few words, without any explanation.\nQuestion: {question}\n"


def message(question: Question) -> str:
    """The user message; supervised training on answers asks with the same one."""
    return PROMPT.format(question=inert(question.text))


async def direct(episode: PromptedEpisode) -> str | None:
    """One generation."""
    return short_answer(await episode.generate(message(episode.question)))
