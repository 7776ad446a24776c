"""Figures of many episodes by arm, seed and question structure.

Infrastructure failures (the retriever or the engine did not answer) are counted in `failures` and enter no mean.
Definitions: EM, F1 and substring EM as in answers.py; the decomposition ratio is the share of episodes with a search
turn of two or more different sub-queries, anywhere in the episode or, for the first-search ratio, in its first search;
over-decomposition is that share on questions that allow no parallel search (sequential, single); under-decomposition is
the share of episodes without one where it is possible, and of sequential questions searched fewer than twice;
`turns` are generations of the model, as in the paper's #Turns (section 5.3, Table 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from parallelsearch.config import WARM_START
from parallelsearch.errors import DataError
from parallelsearch.evaluation import intervals
from parallelsearch.evaluation.critical_path import add_critical_path
from parallelsearch.evaluation.episodes import read_rows
from parallelsearch.records import StopReason, Structure

COLUMNS = (
    "arm", "seed", "dataset", "split", "qid", "golden_answers", "type", "structure", "hops", "stop_reason",
    "well_formed", "em", "f1", "substring_em", "decomposed", "decomposed_first", "llm_calls", "searches", "sub_queries",
    "prompt_tokens", "model_tokens", "observation_tokens", "seconds", "generate_seconds", "search_seconds",
    "gold_recall", "reward_total",
)  # fmt: skip
EPISODE_KEY = ("arm", "seed", "dataset", "split", "qid")
STRUCTURES = tuple(structure.value for structure in Structure)
BY = ("arm", "seed", "structure")

# figure -> column it is the mean of
_PROPORTIONS = {
    "em": "em",
    "substring_em": "substring_em",
    "judged": "judged",
    "decomposition_ratio": "decomposed",
    "first_search_decomposition_ratio": "decomposed_first",
    "over_decomposition": "over_decomposed",
    "under_decomposition": "under_decomposed",
    "answered_without_search": "answered_without_search",
    "well_formed": "well_formed",
    "answered": "answered",
}
_MEANS = {
    "f1": "f1",
    "turns": "llm_calls",
    "llm_calls": "llm_calls",
    "searches": "searches",
    "sub_queries": "sub_queries",
    "seconds": "seconds",
    "generate_seconds": "generate_seconds",
    "search_seconds": "search_seconds",
    "critical_path_seconds": "critical_path_seconds",
    "one_by_one_seconds": "one_by_one_seconds",
    "prompt_tokens": "prompt_tokens",
    "model_tokens": "model_tokens",
    "observation_tokens": "observation_tokens",
    "gold_recall": "gold_recall",
    "reward": "reward_total",
}
_WITH_INTERVAL = ("em", "decomposition_ratio", "f1", "turns", "searches", "seconds")


def load(paths: Iterable[Path], judgements: Iterable[Path] = ()) -> pd.DataFrame:
    """The figures of the episodes of all files, one row an episode, without transcripts; `judged` from `judgements`.

    The same question twice for one arm and seed is a DataError: a file was given twice or two files disagree.
    """
    paths = [Path(path) for path in paths]
    rows: list[dict[str, Any]] = [row for path in paths for row in read_rows(path, COLUMNS)]
    if not rows:
        raise DataError(f"there is no episode in {', '.join(map(str, paths)) or 'an empty list of files'}.")
    episodes = pd.DataFrame(rows, columns=list(COLUMNS))
    twice = episodes[episodes.duplicated(list(EPISODE_KEY))]
    if len(twice):
        first = twice.iloc[0]
        raise DataError(
            f"question {first.qid} of {first.dataset}.{first.split} stands twice for arm {first.arm}, seed"
            f" {first.seed}; give each episodes file once ({', '.join(map(str, paths))})."
        )
    for name in ("em", "f1", "substring_em", "gold_recall", "reward_total"):
        episodes[name] = episodes[name].astype(float)
    episodes["answered"] = episodes["stop_reason"] == StopReason.ANSWERED.value
    episodes["answered_without_search"] = episodes["answered"] & (episodes["searches"] == 0)
    failures = [reason.value for reason in StopReason if reason.is_infrastructure_failure]
    episodes["failed"] = episodes["stop_reason"].isin(failures)
    episodes = _with_judgements(episodes, judgements)
    _add_misjudged(episodes)
    return add_critical_path(episodes)


def _with_judgements(episodes: pd.DataFrame, files: Iterable[Path]) -> pd.DataFrame:
    judged = [pd.read_parquet(path) for path in files]
    if not judged:
        return episodes.assign(judged=float("nan"))
    rows = pd.concat(judged)
    return episodes.merge(rows.assign(judged=rows["judged"].astype(float)), on=list(EPISODE_KEY), how="left")


def _add_misjudged(episodes: pd.DataFrame) -> None:
    """over_decomposed and under_decomposed, null where the structure of the question does not say what is right."""
    structure, decomposed = episodes["structure"], episodes["decomposed"].astype(float)
    one_way = structure.isin([Structure.SEQUENTIAL, Structure.SINGLE])
    episodes["over_decomposed"] = decomposed.where(one_way)
    together = structure.isin([Structure.PARALLEL, Structure.MIXED])
    too_few = (episodes["searches"] < 2).astype(float).where(structure == Structure.SEQUENTIAL)
    episodes["under_decomposed"] = (1 - decomposed).where(together, too_few)


def summarise(
    episodes: pd.DataFrame, by: Sequence[str] = BY, confidence: float = 0.95, samples: int = 2000
) -> pd.DataFrame:
    """One row a group: `by`, n, failures, then every figure and, with `_low` and `_high`, the main ones' intervals."""
    rows = []
    for key, group in episodes.groupby(list(by), sort=False):
        counted = group[~group["failed"]]
        row: dict[str, Any] = dict(zip(by, key, strict=True))
        row.update(n=len(counted), failures=int(group["failed"].sum()))
        for figure in (*_PROPORTIONS, *_MEANS):
            row.update(_figure(figure, counted, confidence, samples))
        searches = counted["searches"].sum()
        row["sub_queries_per_search"] = counted["sub_queries"].sum() / searches if searches else float("nan")
        rows.append(row)
    return pd.DataFrame(rows)


def over_seeds(
    summary: pd.DataFrame, by: Sequence[str] = ("arm", "structure"), confidence: float = 0.95
) -> pd.DataFrame:
    """Mean over the per-seed figures of `summarise`, with their standard deviation (n - 1) and Student's t interval.

    The interval is that of training anew with another seed: seeds are the sample, not the questions. Standard deviation
    and interval are NaN for one seed.
    """
    figures = ["em", "f1", "decomposition_ratio", "turns", "llm_calls", "searches", "seconds"]
    rows = []
    for key, group in summary.groupby(list(by), sort=False):
        row: dict[str, Any] = dict(zip(by, key, strict=True))
        row.update(seeds=group["seed"].nunique(), n=int(group["n"].sum()))
        for figure in figures:
            estimate = intervals.mean_of_few(group[figure], confidence)
            row |= {figure: estimate.value, f"{figure}_low": estimate.low, f"{figure}_high": estimate.high}
            row[f"{figure}_sd"] = group[figure].std(ddof=1)
        rows.append(row)
    return pd.DataFrame(rows)


def arm_order(present: Iterable[str], named: Sequence[str] = ()) -> list[str]:
    """The arms in the order of every table and figure: the warm-started policy, those of `named`, then the others."""
    present = set(present)
    first = [arm for arm in dict.fromkeys((WARM_START, *named)) if arm in present]
    return first + sorted(present - set(first))


def in_order(table: pd.DataFrame, named: Sequence[str] = ()) -> pd.DataFrame:
    """Rows sorted by arm (`arm_order`), seed and structure (the order of records.Structure), as far as there."""
    ranks = {"arm": arm_order(table["arm"], named), "structure": list(STRUCTURES)}
    keys = [name for name in ("dataset", "arm", "seed", "structure") if name in table]
    return table.sort_values(
        keys, key=lambda column: column.map(ranks[column.name].index) if column.name in ranks else column
    ).reset_index(drop=True)


def _figure(figure: str, group: pd.DataFrame, confidence: float, samples: int) -> dict[str, float]:
    values = group[_PROPORTIONS.get(figure) or _MEANS[figure]].dropna()
    if figure not in _WITH_INTERVAL:
        return {figure: float(values.astype(float).mean()) if len(values) else float("nan")}
    if figure in _PROPORTIONS:
        estimate = intervals.proportion(values, confidence)
    else:
        estimate = intervals.mean(values, confidence, samples)
    return {figure: estimate.value, f"{figure}_low": estimate.low, f"{figure}_high": estimate.high}
