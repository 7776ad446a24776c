"""Keys and values of the rows that are decoded together: a slot for each row, in which a token stands at its position.

A row joins by taking the next free slot and leaves by handing its slot to the last row: the other rows stay where they
are, so that neither costs more than that one row's tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

_SPARE_COLUMNS = 128


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


@dataclass(frozen=True, slots=True)
class Pass:
    """What a forward pass reads: `tokens[i]` in slot `first + i`, from position `starts[i]` on.

    Shorter rows are padded on the left, so that the last column of the logits belongs to the last token of every row.
    """

    first: int
    starts: list[int]
    tokens: list[list[int]]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a pass writes: the token (row, column of the input) `read` to (row, position) `row, position`."""

    slots: slice
    reach: int  # columns in use once the pass is done
    row: torch.Tensor
    read: torch.Tensor
    position: torch.Tensor


class SlotKeyValues:
    """The cache of all slots, and the inputs of a forward pass over neighbouring ones."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.cache = Cache(layer_class_to_replicate=partial(SlotLayer, self))  # type: ignore[arg-type]  # called, not subclassed
        self.place = _Place(slice(0), 0, *[torch.empty(0, dtype=torch.long)] * 3)
        self._device = device
        self._seen, self._unseen = torch.tensor([0.0, torch.finfo(dtype).min], dtype=dtype, device=device)

    @property
    def layers(self) -> list[SlotLayer]:
        return self.cache.layers  # type: ignore[return-value]

    def inputs(self, read: Pass) -> dict[str, Any]:
        """The model's arguments for a pass: token ids and positions [rows, width], the mask that is added to attention
        scores [rows, 1, width, reach], and this cache, which will store what the pass computes.
        """
        width = max(len(tokens) for tokens in read.tokens)
        reach = max(start + len(tokens) for start, tokens in zip(read.starts, read.tokens, strict=True))
        padding = torch.tensor([[width - len(tokens)] for tokens in read.tokens])
        columns = torch.arange(width)
        positions = (torch.tensor(read.starts)[:, None] + columns - padding).clamp_(min=0)
        row, column = (index.to(self._device) for index in (columns >= padding).nonzero(as_tuple=True))
        token_ids = torch.tensor([[0] * (width - len(tokens)) + tokens for tokens in read.tokens]).to(self._device)
        positions = positions.to(self._device)
        slots = slice(read.first, read.first + len(read.tokens))
        self.place = _Place(slots, reach, row, column, positions[row, column])
        visible = torch.arange(reach, device=self._device) <= positions[:, :, None]
        return {
            "input_ids": token_ids,
            "position_ids": positions,
            "attention_mask": torch.where(visible, self._seen, self._unseen)[:, None],
            "past_key_values": self.cache,
            "use_cache": True,
        }

    def load(self, slot: int, stored: RowKeyValues) -> None:
        """Fills a slot with stored keys and values."""
        while len(self.layers) < len(stored.layers):
            self.layers.append(SlotLayer(self))
        for layer, pair in zip(self.layers, stored.layers, strict=True):
            layer.load(slot, pair)

    def row(self, slot: int, tokens: int) -> RowKeyValues:
        """A copy of the first `tokens` columns of a slot."""
        return RowKeyValues([layer.row(slot, tokens) for layer in self.layers])

    def move(self, source: int, target: int, tokens: int) -> None:
        """Copies the first `tokens` columns of one slot into another."""
        for layer in self.layers:
            for buffer in layer.buffers:
                buffer[target, :, :tokens] = buffer[source, :, :tokens]

    def release(self) -> None:
        """Empties all slots and gives their memory back."""
        self.cache.layers.clear()


class SlotLayer(DynamicLayer):
    """Keys and values of one layer, two buffers [slots, heads, columns, head size]; unused columns hold any number."""

    def __init__(self, owner: SlotKeyValues) -> None:
        super().__init__()
        self.buffers: list[torch.Tensor] = []
        self._owner = owner

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Writes what a pass computed; returns keys and values of its rows, [rows, heads, reach, head size]."""
        place = self._owner.place
        self._reserve((key_states[0], value_states[0]), place.slots.stop, place.reach)
        views = []
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            rows = buffer[place.slots]
            rows[place.row, :, place.position] = states[place.row, :, place.read]
            views.append(rows[:, :, : place.reach])
        return tuple(views)

    def load(self, slot: int, pair: tuple[torch.Tensor, torch.Tensor]) -> None:
        """Fills a slot with keys and values [heads, tokens, head size]."""
        tokens = pair[0].shape[1]
        self._reserve(pair, slot + 1, tokens)
        for buffer, states in zip(self.buffers, pair, strict=True):
            buffer[slot, :, :tokens] = states

    def row(self, slot: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A copy of the first `tokens` columns of a slot."""
        keys, values = (buffer[slot, :, :tokens].clone() for buffer in self.buffers)
        return keys, values

    def get_seq_length(self) -> int:
        return self._owner.place.reach

    def _reserve(self, like: tuple[torch.Tensor, torch.Tensor], slots: int, columns: int) -> None:
        """Makes room for so many slots and columns of states like these, [heads, any, head size]."""
        old = self.buffers or [states.new_empty(0, states.shape[0], 0, states.shape[2]) for states in like]
        had_slots, had_columns = old[0].shape[0], old[0].shape[2]
        if slots <= had_slots and columns <= had_columns:
            return
        slots = had_slots if slots <= had_slots else max(slots, 2 * had_slots)
        columns = had_columns if columns <= had_columns else columns + _SPARE_COLUMNS
        self.buffers = [states.new_zeros(slots, states.shape[0], columns, states.shape[2]) for states in like]
        for buffer, before in zip(self.buffers, old, strict=True):
            buffer[:had_slots, :, :had_columns] = before
        self.is_initialized = True
