"""The forward pass of a model of Transformers of any architecture, with a line for each row, over pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from parallelsearch.engines.decoding.key_values import (
    PAGE,
    PaddedPass,
    PagedKeyValues,
    RowPages,
    added_mask,
    page_table,
)


class PaddedForward:
    """Reads tokens with a model's own forward pass; shorter rows are padded to the longest."""

    mixes = False  # padded, rows that read one token must not share a pass with rows that read many

    def __init__(self, model: Any) -> None:
        self._model = model
        self._dtype = next(model.parameters()).dtype

    def __call__(
        self, key_values: PagedKeyValues, rows: Sequence[RowPages], tokens: Sequence[Sequence[int]]
    ) -> torch.Tensor:
        """Logits [rows, vocabulary] after further tokens of some rows."""
        return self._model(**padded_inputs(key_values, rows, tokens, self._dtype)).logits[:, -1]


def padded_inputs(
    key_values: PagedKeyValues, rows: Sequence[RowPages], tokens: Sequence[Sequence[int]], dtype: torch.dtype
) -> dict[str, Any]:
    """A model's arguments: token ids and positions are [rows, width], the logits [rows, 1, vocabulary].

    Rows are padded on the left, so that the last column belongs to the last token of every row. The mask is added to
    attention scores, [rows, 1, width, columns].
    """
    width = max(len(new) for new in tokens)
    starts = torch.tensor([[key_values.extend(row, len(new)).start] for row, new in zip(rows, tokens, strict=True)])
    padding = torch.tensor([[width - len(new)] for new in tokens])
    positions = (starts + torch.arange(width) - padding).clamp_(min=0)
    table = page_table(rows)
    row, column = (torch.arange(width) >= padding).nonzero(as_tuple=True)
    position = positions[row, column]
    device = key_values.device
    written = row, column, table[row, position // PAGE], position % PAGE, table
    key_values.padded = PaddedPass(*(part.to(device) for part in written))
    positions = positions.to(device)
    return {
        "input_ids": torch.tensor([[0] * (width - len(new)) + list(new) for new in tokens]).to(device),
        "position_ids": positions,
        "past_key_values": key_values.cache,
        "use_cache": True,
        "logits_to_keep": 1,
        "attention_mask": added_mask(positions, table.shape[1] * PAGE, dtype)[:, None],
    }
