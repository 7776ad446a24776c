"""What every arm would have answered under smaller limits, read off one evaluation under large ones.

Neither agent.max_search_turns nor agent.max_response_tokens is told to the model, and every generation of an episode
has its own seed. So with the same weights, prompt and retriever the episode under a smaller limit is a prefix of the
episode under a larger one, token for token: it goes on as that one does until the limit stops it. If the whole episode
fits, it is the same episode, right or wrong; if not, it ends without an answer, and counts as wrong. (The prefix is
exact where the engine's arithmetic does not depend on what else is in its batch.) One evaluation without the study's
limits thus gives accuracy under every budget. Infrastructure failures of that evaluation enter no budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from parallelsearch.evaluation import metrics

UNLIMITED = "unlimited"
_READ = tuple(
    f"turns.list.element.{name}" for name in ("model_tokens", "observation_tokens", "sub_queries.list.element.text")
)


@dataclass(frozen=True, slots=True)
class TurnSize:
    """Tokens of one generation and of what it was shown then, and whether it searched in parallel."""

    model_tokens: int
    observation_tokens: int
    decomposed: bool


@dataclass(frozen=True, slots=True)
class Prefix:
    """What a limit leaves of an episode: generations begun, a parallel search among them, and whether all fits."""

    llm_calls: int
    decomposed: bool
    whole: bool


def prefix(turns: Sequence[TurnSize], llm_calls: float = math.inf, response_tokens: float = math.inf) -> Prefix:
    """The part of an episode that run_episode makes with at most so many generations and response tokens.

    A generation is begun while there is room for one token, and cut where the room ends; a search that was cut is none.
    An observation that does not fit ends the episode after its search.
    """
    room, decomposed = response_tokens, False
    for number, turn in enumerate(turns):
        if number >= llm_calls or room < 1:
            return Prefix(number, decomposed, False)
        room -= turn.model_tokens
        if room < 0:
            return Prefix(number + 1, decomposed, False)
        decomposed |= turn.decomposed
        room -= turn.observation_tokens
        if room < 0:
            return Prefix(number + 1, decomposed, False)
    return Prefix(len(turns), decomposed, True)


def load(paths: Iterable[Path]) -> pd.DataFrame:
    """metrics.load of episodes files, with the column turn_sizes; no text but that of sub-queries is read."""
    paths = [Path(path) for path in paths]
    sizes = [turns for path in paths for turns in _turn_sizes(path)]
    episodes = metrics.load(paths)
    return episodes.assign(turn_sizes=pd.Series(sizes, index=episodes.index, dtype=object))


def under(episodes: pd.DataFrame, llm_calls: float = math.inf, response_tokens: float = math.inf) -> pd.DataFrame:
    """`episodes` (load) as they would be under a limit: em, llm_calls and decomposed; the other columns stay."""
    parts = [prefix(turns, llm_calls, response_tokens) for turns in episodes["turn_sizes"]]
    return episodes.assign(
        em=episodes["em"] * [float(part.whole) for part in parts],
        llm_calls=[part.llm_calls for part in parts],
        decomposed=[part.decomposed for part in parts],
    )


def _turn_sizes(path: Path) -> Iterable[list[TurnSize]]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=list(_READ)):
            for turns in batch.column("turns").to_pylist():
                yield [
                    TurnSize(turn["model_tokens"], turn["observation_tokens"], _several(turn["sub_queries"]))
                    for turn in turns
                ]


def _several(sub_queries: Iterable[dict[str, str]]) -> bool:
    return len({" ".join(query["text"].casefold().split()) for query in sub_queries} - {""}) > 1
