"""veRL's replay buffer with a short polling interval: its fixed 2 s are a large part of a small model's step."""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer


class FrequentReplayBuffer(ReplayBuffer):
    """Looks for finished episodes every 50 ms."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "poll_interval": 0.05})
