"""F1, ReSearch's and Search-R1's format rewards, by hand over a table of small episodes."""

from __future__ import annotations

from typing import get_args

import pytest

from parallelsearch.agent.transcript import parse_transcript
from parallelsearch.config import SEMANTICS, RewardConfig
from parallelsearch.records import Question, Structure
from parallelsearch.rewards.breakdown import TERMS
from parallelsearch.rewards.compose import score

T = "<think>t</think>"
SEARCH = f"{T}<search>a</search>\n\n<information>Doc 1(Title: x) y\n</information>\n\n"


def rewarded(text: str, semantics: str, golden: tuple[str, ...] = ("the city of Lima",), **settings):
    asked = Question("q", "musique", "dev", "Which city?", golden, "2hop", Structure.SEQUENTIAL)
    return score(parse_transcript(asked, text), asked, RewardConfig(semantics=semantics, **settings))


# F1 against 'the city of Lima', normalised to 'city of lima': 'Lima' has 1 word of 1, of 3: 2 * 1 * (1/3) / (4/3).
# Columns: f1, research, search_r1_format.
EPISODES = [
    (SEARCH + f"{T}<answer>the city of Lima</answer>", 1.0, 1.0, 1.0),
    (SEARCH + f"{T}<answer>Lima</answer>", 0.5, 0.5, 0.2),  # not an exact match: wrong in a good format
    (SEARCH + f"{T}<answer>Rome</answer>", 0.0, 0.1, 0.2),
    (SEARCH + "<answer>the city of Lima</answer>", 1.0, 0.0, 0.8),  # no think block: a bad format
    (SEARCH + "<answer>Lima</answer>", 0.5, 0.0, 0.1),
    (SEARCH + "<answer>Rome</answer>", 0.0, 0.0, 0.1),
    (SEARCH + T, 0.0, 0.0, 0.0),  # no answer
    ("", 0.0, 0.0, 0.0),
    (f"{T}<answer>a city of Lima, city</answer>", 6 / 7, 6 / 7, 0.2),  # 3 words of 4 and of 3: 2 * 3/4 / (7/4)
]


@pytest.mark.parametrize(("text", "f1", "research", "search_r1"), EPISODES)
def test_totals_by_hand(text: str, f1: float, research: float, search_r1: float) -> None:
    assert rewarded(text, "f1").total == pytest.approx(f1)
    assert rewarded(text, "research").total == pytest.approx(research)
    assert rewarded(text, "search_r1_format").total == pytest.approx(search_r1)


@pytest.mark.parametrize(
    ("golden", "answer", "f1"), [("yes", "yes", 1.0), ("yes", "yes it is", 0.0), ("no one", "no", 0.0)]
)
def test_yes_and_no_are_right_or_worth_the_format_alone(golden: str, answer: str, f1: float) -> None:
    text = f"{T}<answer>{answer}</answer>"
    assert rewarded(text, "f1", (golden,)).total == f1
    assert rewarded(text, "research", (golden,)).as_dict() == {
        "f1": f1,
        "format": 0.0 if f1 else 0.1,
        "total": f1 or 0.1,
    }


def test_the_weights_of_the_format_reward() -> None:
    weights = {"structure": 0.3, "final": 0.05}
    for text, total in ((SEARCH + f"{T}<answer>Rome</answer>", 0.3), (SEARCH + "<answer>Rome</answer>", 0.05)):
        assert rewarded(text, "search_r1_format", search_r1_format=weights).as_dict() == pytest.approx(
            {"outcome": 0.0, "format": total, "total": total}
        )


@pytest.mark.parametrize("semantics", get_args(SEMANTICS))
def test_every_term_has_a_name_that_is_stored(semantics: str) -> None:
    """The episodes file has a column for each of TERMS, and none for others."""
    for text, *_ in EPISODES:
        made = rewarded(text, semantics)
        assert made.terms and set(made.terms) <= set(TERMS)
        assert made.as_dict() == {**made.terms, "total": made.total}
