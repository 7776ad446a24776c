"""veRL's SFT trainer as it is, with the wall time of each step among its metrics (veRL 0.9.1 logs none).

torchrun starts this module once for each rank, with the Hydra overrides of verl_sft_config.py.
"""

from __future__ import annotations

import time
from typing import Any

from verl.trainer import sft_trainer
from verl.utils import tensordict_utils

STEP_SECONDS = "timing_s/step"


class TimedSFTTrainer(sft_trainer.SFTTrainer):
    """SFTTrainer whose steps are timed."""

    def _build_engine(self) -> None:
        super()._build_engine()
        train_batch = self.training_client.train_batch

        def timed(data: Any) -> Any:
            started = time.perf_counter()
            output = train_batch(data=data)
            if self.engine.is_mp_src_rank_with_outputs():
                tensordict_utils.get(output, "metrics")[STEP_SECONDS] = time.perf_counter() - started
            return output

        self.training_client.train_batch = timed


if __name__ == "__main__":
    sft_trainer.SFTTrainer = TimedSFTTrainer  # type: ignore[misc]
    sft_trainer.main()
