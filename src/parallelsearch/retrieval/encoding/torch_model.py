"""An encoder's model on a GPU, through PyTorch, in the fastest precision that it computes in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from parallelsearch.model_folder import SAFE
from parallelsearch.retrieval.encoding.declaration import Pooling
from parallelsearch.retrieval.encoding.packing import PackedRows

POOLED_MODEL_TYPES = ("bert", "roberta", "xlm-roberta")  # their extra dense layer is not part of a sentence vector


class TorchModel:
    """Token ids -> vectors on `device`. Thread-safe."""

    def __init__(self, folder: Path, pooling: Pooling, device: str) -> None:
        self.precision = torch_precision(device)
        self._device, self._pooling = device, pooling
        self._model = load_body(folder, self.precision).to(device)
        self.dim: int = self._model.config.hidden_size

    def vectors(self, packed: PackedRows, texts: int) -> np.ndarray:
        """float32 [texts, dim]: the mean of each text's token vectors, or its first one (pooling cls)."""
        import torch

        owners = torch.from_numpy(packed.texts).to(self._device)
        with torch.inference_mode():
            hidden = self._model(
                input_ids=torch.from_numpy(packed.ids).to(self._device),
                attention_mask=(owners.unsqueeze(2) == owners.unsqueeze(1)).unsqueeze(1),  # padding sees padding
                position_ids=torch.from_numpy(packed.positions).to(self._device),
            ).last_hidden_state
            chosen = owners >= 0
            if self._pooling == "cls":
                chosen[:, 1:] &= owners[:, 1:] != owners[:, :-1]
            owners, tokens = owners[chosen], hidden[chosen].float()
            total = torch.zeros((texts, self.dim), device=self._device).index_add_(0, owners, tokens)
            return (total / torch.bincount(owners, minlength=texts).unsqueeze(1)).cpu().numpy()


def load_body(folder: Path, dtype: str) -> Any:
    """The model that gives token vectors, of a folder in Hugging Face layout; `dtype`: a name, or auto (as stored)."""
    from transformers import AutoConfig, AutoModel
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    head: dict[str, Any] = {"add_pooling_layer": False} if config.model_type in POOLED_MODEL_TYPES else {}
    return AutoModel.from_pretrained(folder, dtype=dtype, local_files_only=True, **head, **SAFE).eval()


def torch_precision(device: str) -> str:
    """bfloat16 on a GPU that has it, else float16; float32 on a processor, where OpenVINO is the faster one anyway."""
    import torch

    if device == "cpu":
        return "float32"
    return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"
