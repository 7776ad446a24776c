"""The critic's new head is drawn from the run's seed. Imported by veRL in every process (VERL_USE_EXTERNAL_MODULES).

veRL 0.9.1 seeds the data's order and the generation, but not the weights that a policy has no counterpart of: two runs
with one seed would differ from the first step on. On the CPU nothing else in a step is left to chance.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import verl.utils.model as model_utils

VARIABLE = "PARALLELSEARCH_SEED"

_load = model_utils.load_valuehead_model


def _load_seeded(*arguments: Any, **settings: Any) -> Any:
    with torch.random.fork_rng(devices=[]):  # the head is made on the CPU
        torch.manual_seed(int(os.environ.get(VARIABLE, "0")))
        return _load(*arguments, **settings)


model_utils.load_valuehead_model = _load_seeded
