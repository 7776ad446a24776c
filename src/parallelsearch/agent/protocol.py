"""The text protocol of the agent: one generation becomes one action, retrieved passages become one observation.

A generation asks for a search, `<think> .. </think> <search> a ## b </search>`, or answers,
`<think> .. </think> <answer> .. </answer>`. The set of tags (agent/tags.py) says what the block of passages is called,
which is written "information block" here, and whether an answer stands in a box. The rules for everything else:

- Tags are lower case. A tag in another case is plain text, and a generation that holds one is not exact.
- Nothing inside a think or an information block is an action. An unclosed one reaches to the end of the text.
- A generation that holds no action, two actions, an unclosed or nested search or answer, a search without any
  non-empty sub-query, or an answer without the box that its tags ask for is invalid.
- Anything but white space around the blocks, a missing think block, a stray closing tag or a tag inside a block leaves
  the action valid but the generation not exact, hence the episode not well-formed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from parallelsearch.agent.tags import SEARCH_R1, TAG_SETS, Tags
from parallelsearch.records import Action, Hit, Turn

SEPARATOR = "##"
STOP_STRINGS = ("</search>", "</answer>")
CORRECTION = "\n\nMy action is not correct. Let me rethink.\n\n"  # the paper's text after an invalid action

_CONTROL_TOKEN = re.compile(r"<[|\uff5c][^<>\s]{1,64}[|\uff5c]>")  # <|im_end|>, and DeepSeek's wide bars


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of text at top level. `kind` is a tag's name, 'text', 'stray' (a closing tag) or 'broken' (see parse).

    `start` and `end` delimit the piece in the whole text, tags included; `inner` is what stands between the tags.
    """

    kind: str
    start: int
    end: int
    inner: str


@dataclass(frozen=True, slots=True)
class ParsedGeneration:
    """What one generation says. `exact`: a think block and one action, only white space around them, no tags inside.

    `search_text` is the raw text of the first search block, also where the action is invalid.
    """

    action: Action
    think: str | None
    search_text: str | None
    sub_queries: tuple[str, ...]
    answer: str | None
    exact: bool


def split_sub_queries(search_text: str) -> tuple[str, ...]:
    """The sub-queries of a search: split at ##, stripped, empty ones dropped, order and repetitions kept."""
    return tuple(piece for part in search_text.split(SEPARATOR) if (piece := part.strip()))


def scan_blocks(text: str, tags: Tags = SEARCH_R1) -> list[Block]:
    """`text` as a sequence of blocks; white space between them is dropped, any other text is a 'text' block."""
    blocks: list[Block] = []
    position = 0
    while position < len(text):
        tag = tags.any.search(text, position)
        _append_text(blocks, text, position, tag.start() if tag else len(text))
        if tag is None:
            break
        closing, kind = tag.groups()
        if closing:
            block = Block("stray", tag.start(), tag.end(), "")
        elif kind in ("think", tags.passages):
            block = _inert_block(text, kind, tag)
        else:
            block = _action_block(text, kind, tag, tags)
        blocks.append(block)
        position = block.end
    return blocks


def parse_generation(text: str, tags: Tags = SEARCH_R1) -> ParsedGeneration:
    """The action of one generation, by the rules of this module."""
    blocks = scan_blocks(text, tags)
    kinds = [block.kind for block in blocks]
    actions = [block for block in blocks if block.kind in ("search", "answer")]
    think = next((block.inner.strip() for block in blocks if block.kind == "think"), None)
    search_text = next((block.inner for block in blocks if block.kind == "search"), None)
    action = Action.INVALID
    sub_queries: tuple[str, ...] = ()
    answer = None
    if len(actions) == 1 and "broken" not in kinds:
        if actions[0].kind == "answer":
            answer = tags.read_answer(actions[0].inner)
            action = Action.INVALID if answer is None else Action.ANSWER
        elif sub_queries := split_sub_queries(actions[0].inner):
            action = Action.SEARCH
    exact = kinds in (["think", "search"], ["think", "answer"]) and len(tags.of_any_case.findall(text)) == 4
    return ParsedGeneration(action, think, search_text, sub_queries, answer, exact)


def has_tag(text: str, tags: Tags = SEARCH_R1) -> bool:
    """True for a text with at least one tag of the protocol, wherever it stands; text without any is gibberish."""
    return tags.any.search(text) is not None


def is_well_formed(turns: Sequence[Turn], tags: Tags = SEARCH_R1) -> bool:
    """True when the whole episode reads `(think search information)* think answer` with only white space between.

    `turns` are complete: a search carries its information block. A search without sub-queries is not well-formed.
    """
    return follows_format(turns, tags) and all(turn.action is not Action.INVALID for turn in turns)


def follows_format(turns: Sequence[Turn], tags: Tags = SEARCH_R1) -> bool:
    """The strict automaton of the published code on tags alone: like is_well_formed, but a search may be empty."""
    if not turns:
        return False
    for turn in turns:
        parsed = parse_generation(turn.text, tags)
        last = turn is turns[-1]
        if not parsed.exact or (parsed.search_text is None) is not last:
            return False
        if not last and not is_information(turn.observation, tags):
            return False
    return not turns[-1].observation.strip()


def is_information(observation: str, tags: Tags = SEARCH_R1) -> bool:
    """True for an observation that is one closed information block."""
    stripped = observation.strip()
    return stripped.startswith(f"<{tags.passages}>") and stripped.endswith(f"</{tags.passages}>")


def render_information(results: Sequence[tuple[str, str]], tags: Tags = SEARCH_R1) -> str:
    """The observation of a search turn from pairs of a sub-query and its rendered passages (see render_hit)."""
    body = "".join(f"Results for {defuse(query, tags)}:\n{passages}" for query, passages in results)
    return f"\n\n<{tags.passages}>{body}</{tags.passages}>\n\n"


def render_hit(rank: int, hit: Hit, tags: Tags = SEARCH_R1) -> str:
    """One line for one passage; `rank` counts from 1 within a sub-query."""
    title, text = (" ".join(part.split()) for part in (hit.passage.title, hit.passage.text))
    return f"Doc {rank}(Title: {defuse(title, tags)}) {defuse(text, tags)}\n"


def defuse(text: str, tags: Tags = SEARCH_R1) -> str:
    """`text` with a space put into every tag, so that a passage cannot close its block or pose as an action.

    The control tokens of chat templates (<|im_end|>) are treated alike: a passage must not end the model's turn.
    """
    for pattern in (tags.of_any_case, _CONTROL_TOKEN):
        text = pattern.sub(lambda tag: f"< {tag.group()[1:]}", text)
    return text


def inert(question: str) -> str:
    """A question as it stands in a prompt: no tag of any set, and no control token, is left in it."""
    for tags in TAG_SETS.values():
        question = defuse(question, tags)
    return question


def _append_text(blocks: list[Block], text: str, start: int, end: int) -> None:
    piece = text[start:end]
    if piece.strip():
        blocks.append(Block("text", start, end, piece))


def _inert_block(text: str, kind: str, tag: re.Match[str]) -> Block:
    closing = f"</{kind}>"
    end = text.find(closing, tag.end())
    if end < 0:
        return Block("unclosed", tag.start(), len(text), text[tag.end() :])
    return Block(kind, tag.start(), end + len(closing), text[tag.end() : end])


def _action_block(text: str, kind: str, tag: re.Match[str], tags: Tags) -> Block:
    following = tags.any.search(text, tag.end())
    if following is None or following.group() != f"</{kind}>":
        end = following.start() if following else len(text)
        return Block("broken", tag.start(), end, text[tag.end() : end])
    return Block(kind, tag.start(), following.end(), text[tag.end() : following.start()])
