"""IRCoT (Trivedi et al. 2023): each sentence of the chain of thought is the query of the next search."""

from __future__ import annotations

import re

from parallelsearch.strategies.prompted import PromptedEpisode
from parallelsearch.strategies.reading import CONCLUSION, concluded_answer

PROMPT = (
    "Answer the question with the help of the documents. Think step by step, one sentence at a time. When you know the"
    f' answer, write "{CONCLUSION}: " and the answer in a few words.\n\n{{passages}}\nQuestion: {{question}}\n'
    "Reasoning so far: {thoughts}\nWrite the next sentence.\n"
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s")


async def ircot(episode: PromptedEpisode) -> str | None:
    """At most agent.max_search_turns searches, the first with the question; passages add up over the episode."""
    thoughts: list[str] = []
    query = episode.question.text
    while True:
        await episode.look_up(query)
        reply = await episode.generate(
            PROMPT.format(
                passages=episode.passage_text,
                question=episode.asked,
                thoughts=" ".join(thoughts) or "none",
            )
        )
        if (answer := concluded_answer(reply)) is not None:
            return answer
        query = _SENTENCE_END.split(reply, maxsplit=1)[0]
        if episode.searches >= episode.agent.max_search_turns or not query:
            return None
        thoughts.append(query)
