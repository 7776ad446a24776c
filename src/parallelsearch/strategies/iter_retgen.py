"""Iter-RetGen (Shao et al. 2023; FlashRAG's pipeline): question and last reply together are the next query."""

from __future__ import annotations

from parallelsearch.strategies.prompted import PromptedEpisode
from parallelsearch.strategies.reading import CONCLUSION, concluded_answer

PROMPT = (
    "Answer the question with the help of the documents. Think step by step, then end with one line that reads"
    f' "{CONCLUSION}: " and the answer in a few words.\n\n{{passages}}\nQuestion: {{question}}\n'
)


async def iter_retgen(episode: PromptedEpisode) -> str | None:
    """agent.max_search_turns rounds of one search and one generation; each round reads its own passages only."""
    reply = ""
    for _ in range(episode.agent.max_search_turns):
        episode.passages.clear()
        await episode.look_up(f"{episode.question.text} {reply}".strip())
        reply = await episode.generate(PROMPT.format(passages=episode.passage_text, question=episode.asked))
    return concluded_answer(reply)
