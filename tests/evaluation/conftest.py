"""Two arms that answered four questions."""

from __future__ import annotations

from pathlib import Path

import pytest
from by_hand import ANSWER, PARALLEL, REPEATED, SINGLE, episode, write

from parallelsearch.records import StopReason, Structure


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    ours = [
        episode("1", (PARALLEL, ANSWER), "z", seconds=1),
        episode("2", (PARALLEL, ANSWER), "z", seconds=3),
        episode("3", (REPEATED, ANSWER), "w", seconds=2),
        episode("4", (), None, stop=StopReason.RETRIEVER_ERROR, seconds=90),
        episode("5", (SINGLE, SINGLE), None, Structure.SEQUENTIAL, StopReason.TURN_LIMIT),
    ]
    theirs = [
        episode("1", (SINGLE, SINGLE, ANSWER), "z"),
        episode("2", (SINGLE, SINGLE, ANSWER), "w"),
        episode("3", (SINGLE, ANSWER), "w"),
        episode("4", (SINGLE, SINGLE, ANSWER), "z"),
    ]
    return [write(tmp_path, "parallelsearch", 0, ours), write(tmp_path, "search-r1", 0, theirs)]
