"""Rewards that stand at the tokens that earned them, in veRL's form.

veRL keeps the rewards of a rollout as one number a token (rm_scores, later token_level_scores), but an AgentLoopOutput
has one number, which its as_dict puts at the last token. The output here carries the numbers of all tokens, and its
as_dict writes those; everything behind it, GAE and the KL penalty included, takes rewards by token already. GAE (PPO)
credits each token with what comes at it and after it. GRPO adds the tokens' rewards up: there, a step reward counts for
every token of the episode alike.
"""

from __future__ import annotations

from typing import Any

import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from parallelsearch.agent.episode import Rollout
from parallelsearch.rewards.breakdown import RewardBreakdown


class TokenRewardedOutput(AgentLoopOutput):
    """An AgentLoopOutput with a reward for each response token; `reward_score` is their sum."""

    token_rewards: list[float]

    def as_dict(self) -> dict[str, Any]:
        fields = super().as_dict()
        fields["rm_scores"] = torch.tensor(fields.pop("token_rewards"), dtype=torch.float32)
        return fields


def rewards_of_tokens(rollout: Rollout, reward: RewardBreakdown) -> list[float]:
    """The reward of each response token: of a turn at the last token that the model generated in it, the remainder
    at the last token of the response that the model generated."""
    rewards = [0.0] * len(rollout.response_ids)
    end = 0
    for turn, earned in zip(rollout.episode.turns, reward.by_turn, strict=False):
        rewards[end + turn.model_tokens - 1] += earned
        end += turn.model_tokens + turn.observation_tokens
    last = max(token for token, trained in enumerate(rollout.trains_on) if trained)
    rewards[last] += reward.total - sum(reward.by_turn)
    return rewards
