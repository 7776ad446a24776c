"""Naive retrieval-augmented generation (Lewis et al. 2020): one search with the question itself, then the answer."""

from __future__ import annotations

from parallelsearch.strategies.prompted import PromptedEpisode
from parallelsearch.strategies.reading import short_answer

PROMPT = (
    "Answer the question with the help of the documents. Give only the answer, in a few words, without any"
    " explanation.\n\n{passages}\nQuestion: {question}\n"
)


async def rag(episode: PromptedEpisode) -> str | None:
    """One search and one generation."""
    await episode.look_up(episode.question.text)
    message = PROMPT.format(passages=episode.passage_text, question=episode.asked)
    return short_answer(await episode.generate(message))
