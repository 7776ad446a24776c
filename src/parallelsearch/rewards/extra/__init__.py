"""Terms that can be added to any reward: config.EXTRA_TERMS names them, and each is a file with a function `term`.

A term is a pure function of an Episode and its Question; what it is worth in an arm is its weight in reward.extra.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import get_args

from parallelsearch.config import EXTRA_TERMS
from parallelsearch.records import Episode, Question

# The names stand in the source, in config.EXTRA_TERMS; a configuration only chooses among them.
TERM: dict[str, Callable[[Episode, Question], float]] = {
    name: import_module(f"{__name__}.{name}").term for name in get_args(EXTRA_TERMS)
}
