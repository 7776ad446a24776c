"""Token rows as the data set of veRL's SFT trainer (its setting data.custom_cls)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import torch
from torch.utils.data import Dataset

from parallelsearch.errors import DataError
from parallelsearch.training.verl.token_rows import read_token_rows


class TokenRowDataset(Dataset[dict[str, torch.Tensor]]):
    """Rows of token_rows.py. The arguments are those that verl.trainer.sft_trainer.create_sft_dataset passes."""

    def __init__(
        self, parquet_files: Any, tokenizer: Any, config: Any, processor: Any = None, max_samples: int = -1
    ) -> None:
        """A row longer than config.max_length is a DataError: cutting it would teach an episode without its end."""
        paths: Sequence[Any] = [parquet_files] if isinstance(parquet_files, str | Path) else list(parquet_files)
        self.rows = read_token_rows([Path(path) for path in paths])
        longest = pc.max(pc.list_value_length(self.rows["input_ids"])).as_py() or 0
        if longest > config.max_length:
            raise DataError(
                f"{paths[0]} has a row of {longest} tokens, more than data.max_length = {config.max_length}."
            )

    def __len__(self) -> int:
        return self.rows.num_rows

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        """`input_ids`, `loss_mask` and `position_ids`, each int64 [length]: veRL's form without padding."""
        input_ids = torch.tensor(self.rows["input_ids"][item].as_py())
        return {
            "input_ids": input_ids,
            "loss_mask": torch.tensor(self.rows["loss_mask"][item].as_py()),
            "position_ids": torch.arange(len(input_ids)),
        }
