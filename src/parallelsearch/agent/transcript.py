"""A stored transcript, the text that followed a prompt, read back as an Episode.

An episode that was run here carries its turns; this is for transcripts that come as text only. The text is cut into
turns after every information block that stands right behind a search (also behind one that was not closed, which is
invalid), and after every correction message (ours, and the one of Search-R1 and ParallelSearch, whose example tags are
not actions). Each turn is then read by the rules of the protocol. A search or an answer inside an information block or
a think block is none. An information or think block that is never closed reaches to the end of the text.

The answer is that of the one answer block. A transcript with several answer blocks outside think and information blocks
has no answer: it cannot be told which one was meant, and scoring the best or the last one rewards guessing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from parallelsearch.agent.protocol import (
    CORRECTION,
    Block,
    is_well_formed,
    parse_generation,
    scan_blocks,
)
from parallelsearch.agent.tags import SEARCH_R1, Tags
from parallelsearch.records import Action, Episode, Question, StopReason, SubQuery, Turn

_CORRECTIONS = re.compile(
    r"\s*(?:"
    + re.escape(CORRECTION.strip()).replace(r"\ ", r"\s+")
    + r"|My previous action is invalid\.\s+If I want to search, I should put the query between <search> and </search>\."
    r"\s+If I want to give the final answer, I should put the answer between <answer> and </answer>\."
    r"\s+Let me try again\.)\s*"
)


def parse_transcript(question: Question, transcript: str, tags: Tags = SEARCH_R1) -> Episode:
    """`transcript` as an Episode: turns, answer, well-formedness; token counts and times are 0, hits are not read.

    stop_reason is `answered` for exactly one answer block that ends the transcript, `turn_limit` for a transcript that
    ends with a search, `invalid_action` for all others. The turns' texts and observations add up to the transcript.
    """
    turns = tuple(_turn(text, observation, tags) for text, observation in _pieces(transcript, tags))
    last = turns[-1] if turns else None
    answers = sum(block.kind == "answer" for turn in turns for block in scan_blocks(turn.text, tags))
    if last is not None and last.action is Action.ANSWER and answers == 1:
        stop = StopReason.ANSWERED
    elif last is not None and last.action is Action.SEARCH:
        stop = StopReason.TURN_LIMIT
    else:
        stop = StopReason.INVALID_ACTION
    answered = stop is StopReason.ANSWERED
    return Episode(
        question=question,
        turns=turns,
        answer=last.answer if last is not None and answered else None,
        stop_reason=stop,
        well_formed=answered and is_well_formed(turns, tags),
    )


def _turn(text: str, observation: str, tags: Tags) -> Turn:
    parsed = parse_generation(text, tags)
    return Turn(
        text=text,
        action=parsed.action,
        sub_queries=tuple(SubQuery(query) for query in parsed.sub_queries),
        answer=parsed.answer,
        observation=observation,
    )


def _pieces(transcript: str, tags: Tags) -> Iterator[tuple[str, str]]:
    """Pairs of a generation and the observation behind it, which together are the transcript."""
    start = 0
    for correction in _CORRECTIONS.finditer(transcript):
        yield from _searches(transcript[start : correction.start()], correction.group(), tags)
        start = correction.end()
    if start < len(transcript):
        yield from _searches(transcript[start:], "", tags)


def _searches(text: str, correction: str, tags: Tags) -> Iterator[tuple[str, str]]:
    """The turns of a text without corrections, `correction` behind the last one."""
    start = 0
    previous: Block | None = None
    for block in scan_blocks(text, tags):
        if block.kind == tags.passages and previous is not None and text.startswith("<search>", previous.start):
            end = block.end + len(text[block.end :]) - len(text[block.end :].lstrip())
            yield text[start : previous.end], text[previous.end : end]
            start = end
        previous = block
    if start < len(text) or correction:
        yield text[start:], correction
