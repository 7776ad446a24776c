"""The laptop study's tokenizer, a small policy with random weights, and real passages."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from scripted import WORDS

from parallelsearch.config import PolicyConfig
from parallelsearch.records import Passage


@pytest.fixture(scope="session")
def tokenizer():
    """The byte-level tokenizer of the laptop study, in which each tag is one token."""
    from parallelsearch.training.policy import train_tokenizer

    return train_tokenizer([WORDS, "Doc 1(Title: Oslo) Oslo is the capital of Norway.\nResults for"] * 3, 400)


@pytest.fixture(scope="session")
def model(tokenizer):
    from parallelsearch.training.policy import build_policy

    return build_policy(PolicyConfig(hidden_size=64, layers=2), tokenizer, seed=1)


@pytest.fixture
def passes(monkeypatch) -> list[list[int]]:
    """How many tokens each row reads, in every forward pass of the tests' model."""
    from parallelsearch.agent.packed_forward import PackedForward

    read: list[list[int]] = []
    original = PackedForward.__call__

    def recording(self, key_values, rows, tokens):
        read.append([len(new) for new in tokens])
        return original(self, key_values, rows, tokens)

    monkeypatch.setattr(PackedForward, "__call__", recording)
    return read


@pytest.fixture(scope="session")
def real_passages(shared_data: Path) -> list[Passage]:
    """The first 300 passages of the shared corpus."""
    found = []
    with gzip.open(shared_data / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        for number, line in zip(range(300), lines, strict=False):
            row = json.loads(line)
            found.append(Passage(number, row["title"], row["text"]))
    return found
