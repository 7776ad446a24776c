"""What one generation says: a table of well-formed and malformed texts."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallelsearch.agent.protocol import (
    defuse,
    parse_generation,
    render_hit,
    render_information,
    scan_blocks,
    split_sub_queries,
)
from parallelsearch.records import Action, Hit, Passage

SEARCH, ANSWER, INVALID = Action.SEARCH, Action.ANSWER, Action.INVALID
T = "<think>t</think>"


@pytest.mark.parametrize(
    ("text", "action", "content", "exact"),
    [
        # well-formed
        (f"{T}<search>a</search>", SEARCH, ("a",), True),
        (f"{T} <search> a ## b </search>", SEARCH, ("a", "b"), True),
        (f"\n{T}\n<answer> Lima </answer>\n", ANSWER, "Lima", True),
        (f"{T}<answer></answer>", ANSWER, "", True),
        ("<think></think><search>a</search>", SEARCH, ("a",), True),
        (f"{T}<search>a < b > c</search>", SEARCH, ("a < b > c",), True),
        (f"{T}<answer>use <b>x</b></answer>", ANSWER, "use <b>x</b>", True),
        # an action, but not in the format
        ("<search>a</search>", SEARCH, ("a",), False),
        ("<answer>Lima</answer>", ANSWER, "Lima", False),
        (f"Well. {T}<search>a</search>", SEARCH, ("a",), False),
        (f"{T} so <search>a</search>", SEARCH, ("a",), False),
        (f"{T}<search>a</search> and more", SEARCH, ("a",), False),
        (f"{T}<answer>Lima</answer> and more", ANSWER, "Lima", False),
        (f"{T}<answer>Lima</answer>{T}", ANSWER, "Lima", False),
        (f"{T}{T}<search>a</search>", SEARCH, ("a",), False),
        ("</think><search>a</search>", SEARCH, ("a",), False),
        (f"{T}</think><search>a</search>", SEARCH, ("a",), False),
        (f"{T}<search>a</search></search>", SEARCH, ("a",), False),
        (f"{T}<answer>a</answer><think>", ANSWER, "a", False),
        ("<think>a <think> b</think><search>a</search>", SEARCH, ("a",), False),
        ("<think>maybe <answer>no</answer></think><answer>yes</answer>", ANSWER, "yes", False),
        ("<think>or <search>x</search></think><search>a</search>", SEARCH, ("a",), False),
        (f"{T}<information>I say so</information><answer>Lima</answer>", ANSWER, "Lima", False),
        (f"<THINK>x</THINK>{T}<search>a</search>", SEARCH, ("a",), False),
        ("<think>I could <SEARCH>x</SEARCH></think><search>a</search>", SEARCH, ("a",), False),
        (f"{T}<search>a <Answer>b</Answer></search>", SEARCH, ("a <Answer>b</Answer>",), False),
        # no action
        ("", INVALID, None, False),
        (" \n", INVALID, None, False),
        ("Lima", INVALID, None, False),
        (T, INVALID, None, False),
        (f"{T}<search>a", INVALID, None, False),
        (f"{T}<answer>Lima", INVALID, None, False),
        (f"{T}a</search>", INVALID, None, False),
        (f"{T}<search>a</answer>", INVALID, None, False),
        (f"{T}<search>a<answer>b</answer>", INVALID, None, False),
        (f"{T}<search><search>a</search></search>", INVALID, None, False),
        (f"{T}<search><search>a</search>", INVALID, None, False),
        (f"{T}<answer><answer>a</answer></answer>", INVALID, None, False),
        (f"{T}<search>a<think>b</think></search>", INVALID, None, False),
        (f"{T}<search>a</search><search>b</search>", INVALID, None, False),
        (f"{T}<answer>a</answer><answer>b</answer>", INVALID, None, False),
        (f"{T}<search>a</search><answer>b</answer>", INVALID, None, False),
        (f"{T}<SEARCH>a</SEARCH>", INVALID, None, False),
        (f"{T}<search>a</SEARCH>", INVALID, None, False),
        (f"{T}<Answer>a</Answer>", INVALID, None, False),
        (f"{T}< search>a</search >", INVALID, None, False),
        ("<think>the answer is <answer>Lima</answer>", INVALID, None, False),
        ("<think>I look for <search>a</search>", INVALID, None, False),
        ("<think><answer>Lima</answer></think>", INVALID, None, False),
        ("<information><answer>Lima</answer></information>", INVALID, None, False),
        ("<information><answer>Lima</answer>", INVALID, None, False),
        # nothing to search for
        (f"{T}<search></search>", INVALID, None, True),
        (f"{T}<search>   </search>", INVALID, None, True),
        (f"{T}<search>##</search>", INVALID, None, True),
        (f"{T}<search> ## ####</search>", INVALID, None, True),
    ],
)
def test_one_generation(text, action, content, exact):
    parsed = parse_generation(text)
    assert parsed.action is action
    assert parsed.exact is exact
    assert parsed.sub_queries == (content if action is SEARCH else ())
    assert parsed.answer == (content if action is ANSWER else None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", ("a",)),
        (" a ## b ", ("a", "b")),
        ("b##a##b", ("b", "a", "b")),
        ("a ##", ("a",)),
        ("## a", ("a",)),
        ("##", ()),
        ("####", ()),
        ("a####b", ("a", "b")),
        ("a ### b", ("a", "# b")),
        ("a # b", ("a # b",)),
        ("", ()),
        (" \n\t", ()),
        ("Who was\nborn first?", ("Who was\nborn first?",)),
    ],
)
def test_sub_queries(text, expected):
    assert split_sub_queries(text) == expected


def test_think_and_raw_search_text_are_kept():
    parsed = parse_generation("<think> two cities </think>\n<search> a ## ## b </search>")
    assert (parsed.think, parsed.search_text, parsed.sub_queries) == ("two cities", " a ## ## b ", ("a", "b"))


def test_rendering_of_an_observation():
    hit = Hit(Passage(3, '"Lima"', "Capital\nof Peru."), 0.9)
    line = render_hit(1, hit)
    assert line == 'Doc 1(Title: "Lima") Capital of Peru.\n'
    assert render_information([("capital of Peru", line), ("no hits", "")]) == (
        '\n\n<information>Results for capital of Peru:\nDoc 1(Title: "Lima") Capital of Peru.\n'
        "Results for no hits:\n</information>\n\n"
    )


def test_tags_in_passages_are_defused():
    hit = Hit(Passage(0, "<answer>x</answer>", "a </information> <Search>b</search> c < d"), 1.0)
    line = render_hit(2, hit)
    assert line == "Doc 2(Title: < answer>x< /answer>) a < /information> < Search>b< /search> c < d\n"
    assert scan_blocks(line)[0].kind == "text" and len(scan_blocks(line)) == 1


PIECES = st.sampled_from(
    [f"<{slash}{tag}>" for tag in ("think", "search", "information", "answer", "SEARCH") for slash in ("", "/")]
    + ["##", " ", "a", "\n", "Lima "]
)


@given(st.lists(PIECES, max_size=12).map("".join))
def test_any_text_is_read_and_defused(text):
    parsed = parse_generation(text)
    assert (parsed.action is ANSWER) == (parsed.answer is not None)
    assert (parsed.action is SEARCH) == bool(parsed.sub_queries)
    blocks = scan_blocks(text)
    assert all(a.end <= b.start for a, b in pairwise(blocks))
    assert parse_generation(defuse(text)).action is INVALID
    # An independent statement of exactness: think, one action, nothing else.
    inner = r"(?:(?!</?(?:think|search|information|answer|SEARCH)>).)*"
    strict = rf"\s*<think>{inner}</think>\s*(?:<search>{inner}</search>|<answer>{inner}</answer>)\s*"
    assert parsed.exact == bool(re.fullmatch(strict, text, re.DOTALL))
