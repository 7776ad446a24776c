"""OTC's reward against its formulas, and a group worked out by hand."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt

import pytest

from parallelsearch.agent.transcript import parse_transcript
from parallelsearch.config import RewardConfig
from parallelsearch.records import Episode, Question, Structure
from parallelsearch.rewards.compose import score
from parallelsearch.rewards.semantics.otc import tool_factor

QUESTION = Question("q", "nq", "train", "Which city?", ("Lima",), "", Structure.SINGLE)
ALONE = RewardConfig(semantics="otc")
GROUP = RewardConfig(semantics="otc", otc={"group": True})


def rollout(searches: int, right: bool = True) -> Episode:
    text = "<think>t</think><search>a ## b</search>\n<information>x</information>\n" * searches
    return parse_transcript(QUESTION, text + f"<think>t</think><answer>{'Lima' if right else 'Rome'}</answer>")


# cos(m pi / (2m + 4)): m = 0: cos 0; 1: cos 30 degrees; 2: cos 45; 4: cos 60; 8: cos 72.
@pytest.mark.parametrize(
    ("m", "factor"), [(0, 1.0), (1, sqrt(3) / 2), (2, sqrt(1 / 2)), (4, 0.5), (8, (sqrt(5) - 1) / 4)]
)
def test_a_right_answer_is_worth_less_with_each_search(m: int, factor: float) -> None:
    assert score(rollout(m), QUESTION, ALONE).as_dict() == pytest.approx(
        {"outcome": 1, "tool": factor, "total": factor}
    )
    assert score(rollout(m, right=False), QUESTION, ALONE).total == 0.0


def test_the_factor_falls_towards_nothing_and_never_below() -> None:
    for n in range(4):
        factors = [tool_factor(m, n, 4.0) for m in range(n, 400)]
        assert factors[0] == pytest.approx(1.0)
        assert all(later < earlier for earlier, later in pairwise(factors))
        assert 0 <= factors[-1] < 0.05


def test_alpha_and_c() -> None:
    weights = RewardConfig(semantics="otc", otc={"alpha": 2.0, "c": 1.0})  # cos(pi / 3) = 1/2
    assert score(rollout(1), QUESTION, weights).total == pytest.approx(1.0)


def in_group(*rollouts: Episode) -> list[float]:
    return [
        score(one, QUESTION, GROUP, group=[other for other in rollouts if other is not one]).total for one in rollouts
    ]


def test_a_group_by_hand() -> None:
    """n = 1, for the wrong rollout counts for nothing: f = 2m / (m + 1), so m = 2: sin(2/3 pi), m = 4: sin(4/5 pi)."""
    rewards = in_group(rollout(2), rollout(1), rollout(0, right=False), rollout(4))
    assert rewards == pytest.approx([sqrt(3) / 2, 1.0, 0.0, sqrt(10 - 2 * sqrt(5)) / 4])


def test_a_group_in_which_no_search_was_needed() -> None:
    """n = 0: the formula of OTC-PPO."""
    assert in_group(rollout(2), rollout(0), rollout(1, right=False)) == pytest.approx([sqrt(1 / 2), 1.0, 0.0])


def test_groups_without_a_right_rollout_and_of_one() -> None:
    assert in_group(rollout(0, right=False), rollout(3, right=False)) == [0.0, 0.0]
    assert in_group(rollout(3)) == pytest.approx([1.0])
