"""Direct inference: the model answers from what it knows, without a search (a baseline of Search-R1)."""

from __future__ import annotations

from parallelsearch.strategies.prompted import PromptedEpisode
from parallelsearch.strategies.reading import short_answer

PROMPT = "Answer the question. Give only the answer, in a few words, without any explanation.\nQuestion: {question}\n"


async def direct(episode: PromptedEpisode) -> str | None:
    """One generation."""
    return short_answer(await episode.generate(PROMPT.format(question=episode.question.text)))
