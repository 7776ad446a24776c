"""Short texts side by side in one row of a batch, so that few tokens of it are padding.

A batch of queries padded to its longest was 40% padding. Attention stays within a text: `PackedRows.texts` tells which
tokens belong together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ROW_TOKENS = 64  # of a row that holds several texts: a longer one makes attention cost more than padding saves
STEP = 8  # widths are multiples of it: the processor's library prepares, and keeps, kernels for every new shape


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Texts as int64 arrays [rows, width].

    `texts` has the number of the text that a token belongs to, -1 for padding; `positions` count up from the same
    number in every text.
    """

    ids: np.ndarray
    texts: np.ndarray
    positions: np.ndarray


def pack(texts: Sequence[Sequence[int]], pad: int, first_position: int = 0) -> PackedRows:
    """Tokenised texts (none of them empty), the longest first, each into the first row that has room for it."""
    width = min(max(ROW_TOKENS, max(map(len, texts))), sum(map(len, texts)))
    width = -(-width // STEP) * STEP
    rows: list[list[int]] = []
    room: list[int] = []
    for number in sorted(range(len(texts)), key=lambda n: (-len(texts[n]), n)):
        size = len(texts[number])
        row = next((row for row, free in enumerate(room) if free >= size), len(rows))
        if row == len(rows):
            rows.append([])
            room.append(width)
        rows[row].append(number)
        room[row] -= size
    shape = (len(rows) + len(rows) % 2, width)  # an even number of rows, again for the sake of few shapes
    packed = PackedRows(np.full(shape, pad), np.full(shape, -1), np.full(shape, first_position))
    for row, numbers in enumerate(rows):
        start = 0
        for number in numbers:
            place = (row, slice(start, start + len(texts[number])))
            packed.ids[place] = texts[number]
            packed.texts[place] = number
            packed.positions[place] = first_position + np.arange(len(texts[number]))
            start += len(texts[number])
    return packed
