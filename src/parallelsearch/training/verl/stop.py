"""veRL's PPO trainer saves and ends after the step in which a job was asked to stop.

Named as trainer.checkpoint_callback_class, so that it is imported in the one process that runs the trainer, where veRL
0.9.1 has no other hook between steps. It replaces PPOTrainerSync.on_step_end (trainer/ppo/v1/trainer_sync.py), which
comes after a step and before its metrics are logged, and is called while the loop can still end in order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verl.trainer.ppo.checkpoint_callback import CheckpointCallback
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from parallelsearch.training.process.stop_request import STOP_FILE

_on_step_end = PPOTrainerSync.on_step_end


class StopWhenAsked(CheckpointCallback):
    """Remembers which step was saved last."""

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.saved_step = 0
        self.stop_file = Path(config.trainer.default_local_dir).parent / "data" / STOP_FILE

    def on_save(
        self, trainer: Any, global_step: int, checkpoint_dir: str, async_save: bool = False, **kwargs: Any
    ) -> None:
        """Called by veRL after each checkpoint."""
        self.saved_step = global_step


def _save_and_end(trainer: Any) -> None:
    callback = trainer.checkpoint_callback
    if isinstance(callback, StopWhenAsked) and callback.stop_file.exists():
        if callback.saved_step != trainer.global_steps:
            trainer._save_checkpoint()
        trainer.total_training_steps = trainer.global_steps  # fit() ends after this step, whose metrics it still logs
    _on_step_end(trainer)


PPOTrainerSync.on_step_end = _save_and_end  # type: ignore[method-assign]
