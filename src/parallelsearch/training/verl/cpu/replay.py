"""veRL's replay buffer for small models, whose steps are short and can be repeated.

Its fixed polling interval of 2 s is a large part of such a step. And it hands a step's episodes to the losses in the
order in which they ended: mini-batches, and sums, would be others each time the same step is made.
"""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer


class FrequentReplayBuffer(ReplayBuffer):
    """Looks for finished episodes every 50 ms; a batch is in the order of its prompts and, of each, of its episodes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "poll_interval": 0.05})

    def _materialize_batch(
        self, partition_id: str, selected_prompt_uids: list[str], partition_snapshot: dict[str, dict[str, Any]]
    ) -> Any:
        # Prompts are listed as they were submitted, which is the data loader's order.
        place = {uid: number for number, uid in enumerate(self.prompt_global_steps[partition_id])}

        def position(key: str) -> tuple[int, int, int]:
            uid, session, output = key.split("_")
            return place[uid], int(session), int(output)

        ordered = {key: partition_snapshot[key] for key in sorted(partition_snapshot, key=position)}
        return super()._materialize_batch(partition_id, selected_prompt_uids, ordered)
