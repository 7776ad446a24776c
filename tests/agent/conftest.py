"""Real passages."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from parallelsearch.records import Passage


@pytest.fixture(scope="session")
def real_passages(shared_data: Path) -> list[Passage]:
    """The first 300 passages of the shared corpus."""
    found = []
    with gzip.open(shared_data / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        for number, line in zip(range(300), lines, strict=False):
            row = json.loads(line)
            found.append(Passage(number, row["title"], row["text"]))
    return found
