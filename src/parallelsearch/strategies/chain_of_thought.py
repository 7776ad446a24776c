"""Chain of thought (Wei et al. 2022): the model reasons before it answers, without a search."""

from __future__ import annotations

from parallelsearch.strategies.prompted import PromptedEpisode
from parallelsearch.strategies.reading import CONCLUSION, concluded_answer

PROMPT = (
    "Answer the question. Think step by step, then end with one line that reads"
    f' "{CONCLUSION}: " and the answer in a few words.\nQuestion: {{question}}\n'
)


async def chain_of_thought(episode: PromptedEpisode) -> str | None:
    """One generation."""
    return concluded_answer(await episode.generate(PROMPT.format(question=episode.asked)))
