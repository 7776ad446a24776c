"""Keys and values of a batch of rows of different lengths, in buffers that grow without copying at every token.

Rows share their columns: a row's tokens stand in the columns where its mask is true, in order, and new tokens of all
rows are written to the next free columns. Positions are those of the row, not of the column: padding changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

_SPARE_COLUMNS = 64


class BufferedLayer(DynamicLayer):
    """Keys and values of one layer, [rows, heads, columns, head size], with spare columns behind the used ones."""

    def __init__(self) -> None:
        super().__init__()
        self.columns = 0
        self._buffers: list[torch.Tensor] = []

    @property
    def used(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of the used columns, as views."""
        keys, values = self._buffers
        return keys[..., : self.columns, :], values[..., : self.columns, :]

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Appends new columns; returns keys and values of all used columns."""
        if not self._buffers:
            self.load(key_states, value_states)
            return self.used
        start, self.columns = self.columns, self.columns + key_states.shape[-2]
        if self.columns > self._buffers[0].shape[-2]:
            self._buffers = [_with_spare_columns(buffer[..., :start, :], self.columns) for buffer in self._buffers]
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[..., start : self.columns, :] = states
        return self.used

    def load(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Replaces the content."""
        self.columns = keys.shape[-2]
        self.is_initialized = True
        self._buffers = [_with_spare_columns(states, self.columns) for states in (keys, values)]

    def get_seq_length(self) -> int:
        return self.columns


@dataclass(slots=True)
class RowKeyValues:
    """Keys and values of one row: for each layer a pair of tensors [heads, tokens, head size]."""

    layers: list[tuple[torch.Tensor, torch.Tensor]]

    @property
    def tokens(self) -> int:
        return self.layers[0][0].shape[-2]

    @property
    def bytes(self) -> int:
        return sum(keys.nbytes + values.nbytes for keys, values in self.layers)


class BatchKeyValues:
    """The cache of a batch with its mask, bool [rows, columns]."""

    def __init__(self, device: torch.device) -> None:
        self.cache = Cache(layer_class_to_replicate=BufferedLayer)
        self.mask = torch.zeros(0, 0, dtype=torch.bool, device=device)

    @property
    def layers(self) -> list[BufferedLayer]:
        return self.cache.layers  # type: ignore[return-value]

    @classmethod
    def of_rows(cls, rows: Sequence[RowKeyValues | None], device: torch.device) -> BatchKeyValues:
        """A batch of stored rows. None is a row without tokens; if all are None, the cache is empty."""
        batch = cls(device)
        columns = max((row.tokens for row in rows if row), default=0)
        batch.mask = torch.zeros(len(rows), columns, dtype=torch.bool, device=device)
        for index, row in enumerate(rows):
            if row:
                batch.mask[index, columns - row.tokens :] = True
        example = next((row for row in rows if row), None)
        for number, pair in enumerate(example.layers if example else ()):
            tensors = [like.new_zeros(len(rows), like.shape[0], columns, like.shape[2]) for like in pair]
            for index, row in enumerate(rows):
                if row:
                    for tensor, states in zip(tensors, row.layers[number], strict=True):
                        tensor[index, :, columns - row.tokens :] = states
            layer = BufferedLayer()
            layer.load(*tensors)
            batch.cache.layers.append(layer)
        return batch

    def append_mask(self, columns: torch.Tensor) -> torch.Tensor:
        """Adds the mask of columns about to be written, bool [rows, new columns]; returns the whole mask."""
        self.mask = torch.cat([self.mask, columns], dim=1)
        return self.mask

    def row(self, index: int) -> RowKeyValues:
        """A copy of one row without its padding."""
        tokens = self.mask[index].nonzero().squeeze(1)
        return RowKeyValues(
            [
                (keys[index].index_select(1, tokens), values[index].index_select(1, tokens))
                for keys, values in (layer.used for layer in self.layers)
            ]
        )

    def select(self, rows: list[int]) -> None:
        """Keeps only `rows`, and no more columns than the longest of them has tokens."""
        index = torch.tensor(rows, device=self.mask.device)
        mask = self.mask[index]
        columns = int(mask.sum(1).max())
        order = mask.to(torch.uint8).argsort(dim=1, stable=True)[:, mask.shape[1] - columns :]
        self.mask = mask.gather(1, order)
        for layer in self.layers:
            layer.load(*(_gathered(states[index], order) for states in layer.used))

    def join(self, other: BatchKeyValues) -> None:
        """Appends the rows of another batch."""
        columns = max(self.mask.shape[1], other.mask.shape[1])
        self.mask = torch.cat([_padded(self.mask, columns, 1), _padded(other.mask, columns, 1)])
        for mine, theirs in zip(self.layers, other.layers, strict=True):
            pairs = zip(mine.used, theirs.used, strict=True)
            mine.load(*[torch.cat([_padded(a, columns, 2), _padded(b, columns, 2)]) for a, b in pairs])


def _with_spare_columns(states: torch.Tensor, columns: int) -> torch.Tensor:
    room = states.new_zeros(*states.shape[:-2], columns + _SPARE_COLUMNS, states.shape[-1])
    room[..., : states.shape[-2], :] = states
    return room


def _gathered(states: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """The columns `order` [rows, columns] of `states` [rows, heads, any, size]."""
    return states.gather(2, order[:, None, :, None].expand(-1, states.shape[1], -1, states.shape[3]))


def _padded(tensor: torch.Tensor, columns: int, dimension: int) -> torch.Tensor:
    """`tensor` with zeros before it along `dimension`, up to `columns`."""
    missing = columns - tensor.shape[dimension]
    if not missing:
        return tensor
    shape = list(tensor.shape)
    shape[dimension] = missing
    return torch.cat([tensor.new_zeros(shape), tensor], dim=dimension)
