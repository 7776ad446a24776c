"""The text protocol of the agent: one generation becomes one action, retrieved passages become one observation.

A generation asks for a search, `<think> .. </think> <search> a ## b </search>`, or answers,
`<think> .. </think> <answer> .. </answer>`. The rules for everything else:

- Tags are lower case. A tag in another case is plain text, and a generation that holds one is not exact.
- Nothing inside a think or an information block is an action. An unclosed one reaches to the end of the text.
- A generation that holds no action, two actions, an unclosed or nested search or answer, or a search without any
  non-empty sub-query is invalid.
- Anything but white space around the blocks, a missing think block, a stray closing tag or a tag inside a block leaves
  the action valid but the generation not exact, hence the episode not well-formed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from parallelsearch.records import Action, Hit, Turn

SEPARATOR = "##"
STOP_STRINGS = ("</search>", "</answer>")
CORRECTION = "\n\nMy action is not correct. Let me rethink.\n\n"  # the paper's text after an invalid action

_TAG = re.compile(r"<(/?)(think|search|information|answer)>")
_TAG_OF_ANY_CASE = re.compile(_TAG.pattern, re.IGNORECASE)


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


def scan_blocks(text: str) -> list[Block]:
    """`text` as a sequence of blocks; white space between them is dropped, any other text is a 'text' block."""
    blocks: list[Block] = []
    position = 0
    while position < len(text):
        tag = _TAG.search(text, position)
        _append_text(blocks, text, position, tag.start() if tag else len(text))
        if tag is None:
            break
        closing, kind = tag.groups()
        if closing:
            block = Block("stray", tag.start(), tag.end(), "")
        elif kind in ("think", "information"):
            block = _inert_block(text, kind, tag)
        else:
            block = _action_block(text, kind, tag)
        blocks.append(block)
        position = block.end
    return blocks


def parse_generation(text: str) -> ParsedGeneration:
    """The action of one generation, by the rules of this module."""
    blocks = scan_blocks(text)
    kinds = [block.kind for block in blocks]
    actions = [block for block in blocks if block.kind in ("search", "answer")]
    think = next((block.inner.strip() for block in blocks if block.kind == "think"), None)
    search_text = next((block.inner for block in blocks if block.kind == "search"), None)
    action = Action.INVALID
    sub_queries: tuple[str, ...] = ()
    answer = None
    if len(actions) == 1 and "broken" not in kinds:
        if actions[0].kind == "answer":
            action, answer = Action.ANSWER, actions[0].inner.strip()
        elif sub_queries := split_sub_queries(actions[0].inner):
            action = Action.SEARCH
    exact = kinds in (["think", "search"], ["think", "answer"]) and len(_TAG_OF_ANY_CASE.findall(text)) == 4
    return ParsedGeneration(action, think, search_text, sub_queries, answer, exact)


def is_well_formed(turns: Sequence[Turn]) -> bool:
    """True when the whole episode reads `(think search information)* think answer` with only white space between.

    `turns` are complete: a search carries its information block. A search without sub-queries is not well-formed.
    """
    return follows_format(turns) and all(turn.action is not Action.INVALID for turn in turns)


def follows_format(turns: Sequence[Turn]) -> bool:
    """The strict automaton of the published code on tags alone: like is_well_formed, but a search may be empty."""
    if not turns:
        return False
    for turn in turns:
        parsed = parse_generation(turn.text)
        last = turn is turns[-1]
        if not parsed.exact or (parsed.search_text is None) is not last:
            return False
        if not last and not is_information(turn.observation):
            return False
    return not turns[-1].observation.strip()


def is_information(observation: str) -> bool:
    """True for an observation that is one closed information block."""
    stripped = observation.strip()
    return stripped.startswith("<information>") and stripped.endswith("</information>")


def render_information(results: Sequence[tuple[str, str]]) -> str:
    """The observation of a search turn from pairs of a sub-query and its rendered passages (see render_hits)."""
    body = "".join(f"Results for {defuse(query)}:\n{passages}" for query, passages in results)
    return f"\n\n<information>{body}</information>\n\n"


def render_hit(rank: int, hit: Hit) -> str:
    """One line for one passage; `rank` counts from 1 within a sub-query."""
    text = " ".join(hit.passage.text.split())
    return f"Doc {rank}(Title: {defuse(' '.join(hit.passage.title.split()))}) {defuse(text)}\n"


def defuse(text: str) -> str:
    """`text` with a space put into every tag, so that a passage cannot close its block or pose as an action."""
    return _TAG_OF_ANY_CASE.sub(lambda tag: f"< {tag.group()[1:]}", text)


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


def _action_block(text: str, kind: str, tag: re.Match[str]) -> Block:
    following = _TAG.search(text, tag.end())
    if following is None or following.group() != f"</{kind}>":
        end = following.start() if following else len(text)
        return Block("broken", tag.start(), end, text[tag.end() : end])
    return Block(kind, tag.start(), following.end(), text[tag.end() : following.start()])
