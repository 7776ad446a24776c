"""PyTorch's own files, which are pickles: read so that only tensors and plain values come out of them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from parallelsearch.errors import TrainingError


def load_tensors(path: Path, next_step: str) -> dict[str, Any]:
    """What torch.save wrote to `path`, on the CPU; TrainingError for a file that holds anything but tensors and values.

    DTensors are admitted once torch.distributed.tensor is imported.
    """
    import torch

    try:
        return dict(torch.load(path, map_location="cpu", weights_only=True))
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise TrainingError(f"{path} cannot be read as tensors alone ({reason}); {next_step}.") from None
