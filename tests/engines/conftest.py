"""What the forward passes of a model read."""

from __future__ import annotations

import pytest


@pytest.fixture
def passes(monkeypatch) -> list[list[int]]:
    """How many tokens each row reads, in every forward pass of the tests' model."""
    from parallelsearch.engines.decoding.packed_forward import PackedForward

    read: list[list[int]] = []
    original = PackedForward.__call__

    def recording(self, key_values, rows, tokens):
        read.append([len(new) for new in tokens])
        return original(self, key_values, rows, tokens)

    monkeypatch.setattr(PackedForward, "__call__", recording)
    return read
