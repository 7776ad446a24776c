"""GRPO's advantages among the episodes of a prompt that were not lost. veRL imports this module in all its processes.

veRL's own estimator takes an episode that was lost to the retriever or the engine (all its tokens are masked out) for
one with a reward of 0, which moves the mean and the spread of its group, and so the advantages of all others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, register_adv_est

from parallelsearch.training.verl.config import GRPO


@register_adv_est(GRPO)
def grpo_of_finished_episodes(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: np.ndarray, config: Any = None, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and returns, both [episodes, tokens], as veRL's GRPO gives them without the lost episodes.

    `index` [episodes] names the group of each. An episode that is left alone has nothing to be compared with: 0.
    """
    lost = response_mask.sum(-1) == 0
    groups = np.array(
        [f"lost {row}" if out else str(group) for row, (group, out) in enumerate(zip(index, lost, strict=True))]
    )
    by_spread = config.get("norm_adv_by_std_in_grpo", True) if config is not None else True
    advantages, _returns = compute_grpo_outcome_advantage(
        token_level_rewards, response_mask, groups, norm_adv_by_std_in_grpo=by_spread
    )
    names, sizes = np.unique(groups, return_counts=True)
    alone = torch.from_numpy(np.isin(groups, names[sizes == 1])).to(advantages.device)
    advantages = advantages.masked_fill(alone[:, None], 0.0)
    return advantages, advantages
