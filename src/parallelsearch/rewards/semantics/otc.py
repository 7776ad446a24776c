"""Semantics `otc`: the reward of OTC (arXiv 2504.14870), a right answer times a factor that falls with each search.

r = alpha * r_tool * r_correct, so that a wrong answer is worth 0 however few its searches. With m the searches of the
episode:

- OTC-PPO (otc.group false): r_tool = cos(m pi / (2m + c)), which is 1 without a search.
- OTC-GRPO (otc.group true): n is the smallest m among the right rollouts of the same prompt.
  r_tool = 1 where m = n = 0, cos(m pi / (2m + c)) where n = 0 < m, and sin(f pi / (2n)) with f = 2nm / (m + n)
  elsewhere: 1 at m = n, less for more searches.

A search turn is one tool call, whatever the number of its sub-queries. The source as we have it leaves open alpha and c
(here 1, and 4, the searches an episode may have), r_correct (here exact match), and how n is carried from one epoch to
the next (here it is not: n is that of the group at hand; an episode that is alone in its group has n = m).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, pi, sin

from parallelsearch.config import OtcConfig
from parallelsearch.records import Episode, Question
from parallelsearch.rewards.breakdown import RewardBreakdown
from parallelsearch.rewards.components import outcome


def reward(episode: Episode, question: Question, weights: OtcConfig, group: Sequence[Episode] = ()) -> RewardBreakdown:
    """The terms outcome, 0 or 1, and tool, in [0, 1]; the total is alpha times their product.

    `group` are the other rollouts of the prompt.
    """
    right = outcome(episode, question)
    fewest = min(
        (rollout.searches for rollout in (episode, *group) if outcome(rollout, question)), default=episode.searches
    )
    tool = tool_factor(episode.searches, fewest if weights.group else 0, weights.c)
    return RewardBreakdown({"outcome": right, "tool": tool}, weights.alpha * tool * right)


def tool_factor(m: int, n: int, c: float) -> float:
    """r_tool of `m` searches where `n` are enough; with n = 0 the formula of OTC-PPO."""
    if n == 0:
        return cos(m * pi / (2 * m + c))
    return sin(n * m / (m + n) * pi / n)
