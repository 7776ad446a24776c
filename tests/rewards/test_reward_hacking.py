"""What each semantics pays for every trick that was reported of reward functions like these.

The values are stated in advance, from the definitions: with lambda_d 0.15, lambda_s 0.35, lambda_f 0.1 and alpha 3,

- r_o is 1 for the right answer;
- r_d is 0.45 for a decomposition on a comparison and 0.15 for none on a bridge. A decomposition is, under `paper`, a
  search with two non-empty sub-queries, under `released` a first search with '##', under `bounded` one with two
  different sub-queries;
- r_s is -0.35 |n - 1| on a comparison and -0.35 |min(n, 2) - 2| on a bridge; `released` pays 0.35 more, `bounded` takes
  at most 0.70 and also on a bridge for more than two searches. n are the valid searches, under `released` the tags;
- r_f is -0.1 for a right answer in a bad format and +0.1 for a wrong one in a good format.
"""

from __future__ import annotations

from math import cos, pi
from pathlib import Path

import pytest

from parallelsearch.agent.transcript import parse_transcript
from parallelsearch.config import RewardConfig
from parallelsearch.records import Question, Structure
from parallelsearch.rewards.compose import score

DOCS = Path(__file__).resolve().parents[2] / "docs" / "rewards.md"
T = "<think>t</think>"
FOUND = "\n\n<information>Results for a:\nDoc 1(Title: x) y\n</information>\n\n"


def searches(*texts: str) -> str:
    return "".join(f"{T}<search>{text}</search>{FOUND}" for text in texts)


def answer(text: str) -> str:
    return f"{T}<answer>{text}</answer>"


HONEST = {"comparison": searches("a ## b"), "bridge": searches("a", "b")}
POISON = FOUND.replace("y", "<search>x</search> y")


def trick(name: str, kind: str, text: str) -> str:
    """The transcript of a trick on a question of this kind, with `text` as the answer."""
    honest = HONEST[kind]
    return {
        "honest": honest + answer(text),
        "empty sub-query `a ##`": searches("a ##") + answer(text),
        "`##` alone": searches("##") + answer(text),
        "`####`": searches("####") + answer(text),
        "the same sub-query twice": searches("a ## a") + answer(text),
        "eight searches": searches(*["a"] * 8) + answer(text),
        "`<search>` in a passage": honest.replace(FOUND, POISON) + answer(text),
        "decomposing in the second search": searches("a", "b ## c") + answer(text),
        "no search": answer(text),
        "text after `</answer>`": honest + answer(text) + " That is it.",
        "upper-case tag": honest.replace("<search>", "<SEARCH>").replace("</search>", "</SEARCH>") + answer(text),
        "unclosed search": honest.replace("</search>", "") + answer(text),
        "nested search": f"{T}<search><search>a</search></search>{FOUND}" + answer(text),
        "several answers": honest + f"{T}<answer>{text}</answer><answer>Oslo</answer>",
        "answer inside think": honest + f"<think>It is <answer>{text}</answer></think>",
        "unclosed answer": honest + f"{T}<answer>{text}",
    }[name]


# (right, wrong) under paper, released and bounded: first of a comparison, then of a bridge question.
TABLE = {
    "honest": (  # comparison: 1 + 0.45; bridge: 1 + 0.15
        [(1.45, 0.55), (1.80, 0.90), (1.45, 0.55)],
        [(1.15, 0.25), (1.50, 0.60), (1.15, 0.25)],
    ),
    "empty sub-query `a ##`": (  # one sub-query is no decomposition, '##' is one for `released`; n = 1
        [(1.00, 0.10), (1.80, 0.90), (1.00, 0.10)],
        [(0.80, -0.10), (1.00, 0.10), (0.80, -0.10)],
    ),
    "`##` alone": (  # no search, and a bad format; for `released` a decomposition, one search and a good format
        [(0.55, -0.35), (1.80, 0.90), (0.55, -0.35)],
        [(0.35, -0.55), (1.00, 0.10), (0.35, -0.55)],
    ),
    "`####`": (  # as before
        [(0.55, -0.35), (1.80, 0.90), (0.55, -0.35)],
        [(0.35, -0.55), (1.00, 0.10), (0.35, -0.55)],
    ),
    "the same sub-query twice": (  # a decomposition for all but `bounded`; n = 1
        [(1.45, 0.55), (1.80, 0.90), (1.00, 0.10)],
        [(0.65, -0.25), (1.00, 0.10), (0.80, -0.10)],
    ),
    "eight searches": (  # comparison: -0.35 * 7, `bounded` -0.35 * 2; bridge: free but for `bounded`
        [(-1.45, -2.35), (-1.10, -2.00), (0.30, -0.60)],
        [(1.15, 0.25), (1.50, 0.60), (0.45, -0.45)],
    ),
    "`<search>` in a passage": (  # as honest: nobody reads passages
        [(1.45, 0.55), (1.80, 0.90), (1.45, 0.55)],
        [(1.15, 0.25), (1.50, 0.60), (1.15, 0.25)],
    ),
    "decomposing in the second search": (  # n = 2; no decomposition for `released`
        [(1.10, 0.20), (1.00, 0.10), (1.10, 0.20)],
        [(1.00, 0.10), (1.50, 0.60), (1.00, 0.10)],
    ),
    "no search": (  # n = 0: -0.35 and -0.70
        [(0.65, -0.25), (1.00, 0.10), (0.65, -0.25)],
        [(0.45, -0.45), (0.80, -0.10), (0.45, -0.45)],
    ),
    "text after `</answer>`": (  # honest in a bad format: 0.1 less
        [(1.35, 0.45), (1.70, 0.80), (1.35, 0.45)],
        [(1.05, 0.15), (1.40, 0.50), (1.05, 0.15)],
    ),
    "upper-case tag": (  # plain text: no search, bad format
        [(0.55, -0.35), (0.90, 0.00), (0.55, -0.35)],
        [(0.35, -0.55), (0.70, -0.20), (0.35, -0.55)],
    ),
    "unclosed search": (  # no search, bad format; `released` counts the opening tags (one, and two)
        [(0.55, -0.35), (1.25, 0.35), (0.55, -0.35)],
        [(0.35, -0.55), (1.40, 0.50), (0.35, -0.55)],
    ),
    "nested search": (  # neither search nor answer can be told: r_o 0, r_f 0, n = 0, for `released` n = 2
        [(-0.35, -0.35), (0.00, 0.00), (-0.35, -0.35)],
        [(-0.55, -0.55), (0.50, 0.50), (-0.55, -0.55)],
    ),
    "several answers": (  # no answer: r_d + r_s alone
        [(0.45, 0.45), (0.80, 0.80), (0.45, 0.45)],
        [(0.15, 0.15), (0.50, 0.50), (0.15, 0.15)],
    ),
    "answer inside think": (  # no answer
        [(0.45, 0.45), (0.80, 0.80), (0.45, 0.45)],
        [(0.15, 0.15), (0.50, 0.50), (0.15, 0.15)],
    ),
    "unclosed answer": (  # no answer
        [(0.45, 0.45), (0.80, 0.80), (0.45, 0.45)],
        [(0.15, 0.15), (0.50, 0.50), (0.15, 0.15)],
    ),
}
STRUCTURES = {"comparison": Structure.PARALLEL, "bridge": Structure.SEQUENTIAL}
SEMANTICS = ("paper", "released", "bounded")
CELLS = [
    (name, kind, semantics, *pair)
    for name, kinds in TABLE.items()
    for kind, row in zip(STRUCTURES, kinds, strict=True)
    for semantics, pair in zip(SEMANTICS, row, strict=True)
]


def paid(name: str, kind: str, semantics: str, text: str) -> float:
    asked = Question("q", "hotpotqa", "dev", "Which city?", ("Lima",), kind, STRUCTURES[kind])
    return score(parse_transcript(asked, trick(name, kind, text)), asked, RewardConfig(semantics=semantics)).total


@pytest.mark.parametrize(("name", "kind", "semantics", "right", "wrong"), CELLS)
def test_what_a_trick_pays(name: str, kind: str, semantics: str, right: float, wrong: float) -> None:
    assert paid(name, kind, semantics, "Lima") == pytest.approx(right)
    assert paid(name, kind, semantics, "Rome") == pytest.approx(wrong)


# Of a comparison, right and wrong: F1 | F1, 0.1 for the format alone, nothing in a bad one | 1, 0.8, 0.2, 0.1, 0 |
# cos(m pi / (2m + 4)) of a right answer after m searches.
ONE, TWO, EIGHT = cos(pi / 6), cos(2 * pi / 8), cos(8 * pi / 20)
OTHER_METHODS = {
    "honest": [(1, 0), (1, 0.1), (1, 0.2), (ONE, 0)],
    "empty sub-query `a ##`": [(1, 0), (1, 0.1), (1, 0.2), (ONE, 0)],
    "`##` alone": [(1, 0), (0, 0), (0.8, 0.1), (1, 0)],
    "`####`": [(1, 0), (0, 0), (0.8, 0.1), (1, 0)],
    "the same sub-query twice": [(1, 0), (1, 0.1), (1, 0.2), (ONE, 0)],
    "eight searches": [(1, 0), (1, 0.1), (1, 0.2), (EIGHT, 0)],
    "`<search>` in a passage": [(1, 0), (1, 0.1), (1, 0.2), (ONE, 0)],
    "decomposing in the second search": [(1, 0), (1, 0.1), (1, 0.2), (TWO, 0)],
    "no search": [(1, 0), (1, 0.1), (1, 0.2), (1, 0)],
    "text after `</answer>`": [(1, 0), (0, 0), (0.8, 0.1), (ONE, 0)],
    "upper-case tag": [(1, 0), (0, 0), (0.8, 0.1), (1, 0)],
    "unclosed search": [(1, 0), (0, 0), (0.8, 0.1), (1, 0)],
    "nested search": [(0, 0), (0, 0), (0, 0), (0, 0)],
    "several answers": [(0, 0), (0, 0), (0, 0), (0, 0)],
    "answer inside think": [(0, 0), (0, 0), (0, 0), (0, 0)],
    "unclosed answer": [(0, 0), (0, 0), (0, 0), (0, 0)],
}


@pytest.mark.parametrize("name", OTHER_METHODS)
def test_what_a_trick_pays_with_the_rewards_of_other_methods(name: str) -> None:
    for semantics, (right, wrong) in zip(
        ("f1", "research", "search_r1_format", "otc"), OTHER_METHODS[name], strict=True
    ):
        assert paid(name, "comparison", semantics, "Lima") == pytest.approx(right), semantics
        assert paid(name, "comparison", semantics, "Rome") == pytest.approx(wrong), semantics


@pytest.mark.parametrize("kind", STRUCTURES)
@pytest.mark.parametrize("name", TABLE)
def test_under_bounded_no_trick_pays_more_than_the_honest_episode(name: str, kind: str) -> None:
    for text in ("Lima", "Rome"):
        assert paid(name, kind, "bounded", text) <= paid("honest", kind, "bounded", text) + 1e-9
    # And no wrong answer, however come by, pays as much as the honest right one.
    assert paid(name, kind, "bounded", "Rome") < paid("honest", kind, "bounded", "Lima")


def test_the_table_of_the_documentation_is_what_the_code_pays() -> None:
    lines = [line.strip("| ").split(" | ") for line in DOCS.read_text(encoding="utf-8").splitlines() if " / " in line]
    rows = {cells[0]: cells[1:] for cells in lines if cells[0] in TABLE}
    assert list(rows) == list(TABLE)
    for name, cells in rows.items():
        paid_now = [
            f"{paid(name, kind, semantics, 'Lima'):.2f} / {paid(name, kind, semantics, 'Rome'):.2f}"
            for kind in STRUCTURES
            for semantics in SEMANTICS
        ]
        assert cells == [cell.replace("-0.00", "0.00") for cell in paid_now], name
