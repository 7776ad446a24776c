"""veRL's SFT trainer, with the wall time of each step among its metrics (veRL 0.9.1 logs none), and an end when asked.

torchrun starts this module once for each rank, with the Hydra overrides of sft_config.py.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from verl.trainer import sft_trainer
from verl.utils import tensordict_utils

from parallelsearch.training.process.stop_request import STOP_FILE

STEP_SECONDS = "timing_s/step"


class TimedSFTTrainer(sft_trainer.SFTTrainer):
    """SFTTrainer whose steps are timed, and which saves and ends once the run's data/stop is there."""

    _steps_taken = 0

    def _asked_to_stop(self) -> bool:
        """What rank 0 sees, on every rank: all of them have to save the same step."""
        seen = [(Path(self.config.trainer.default_local_dir).parent / "data" / STOP_FILE).exists()]
        torch.distributed.broadcast_object_list(seen, src=0)
        return bool(seen[0])

    def _build_engine(self) -> None:
        super()._build_engine()
        train_batch = self.training_client.train_batch

        def timed(data: Any) -> Any:
            started = time.perf_counter()
            output = train_batch(data=data)
            self._steps_taken += 1
            if self._asked_to_stop():
                self.total_training_steps = self.resume_global_step + self._steps_taken  # this one: save and end
            if self.engine.is_mp_src_rank_with_outputs():
                tensordict_utils.get(output, "metrics")[STEP_SECONDS] = time.perf_counter() - started
            return output

        self.training_client.train_batch = timed


if __name__ == "__main__":
    sft_trainer.SFTTrainer = TimedSFTTrainer  # type: ignore[misc]
    sft_trainer.main()
