"""Accuracy against budget: every arm under every limit, by structure and number of parts, and against the baseline."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from parallelsearch.config import BudgetsConfig
from parallelsearch.evaluation import seed_bootstrap
from parallelsearch.evaluation.budgets import UNLIMITED, under
from parallelsearch.records import Structure

ALL, SEVERAL = "all", "3+"  # parts of a row that holds every number of them, and three or more


def by_parts(episodes: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """(structure, hops, episodes) of every structure and, where parallel questions differ in parts, of each number."""
    for structure in (name.value for name in Structure):
        group = episodes[episodes["structure"] == structure]
        if group.empty:
            continue
        yield structure, ALL, group
        numbers = sorted(group["hops"].dropna().unique()) if structure == Structure.PARALLEL else []
        if len(numbers) > 1:
            for number in numbers:
                yield structure, f"{number:g}", group[group["hops"] == number]
            yield structure, SEVERAL, group[group["hops"] >= 3]


def budgets_of(budgets: BudgetsConfig) -> list[tuple[str, float]]:
    """(kind, value) of every budget, and last of all no limit."""
    limits = [(kind, float(value)) for kind in ("llm_calls", "response_tokens") for value in getattr(budgets, kind)]
    return [*limits, (UNLIMITED, math.nan)]


def summarise(
    episodes: pd.DataFrame, budgets: BudgetsConfig, baseline: str, confidence: float = 0.95, samples: int = 2000
) -> pd.DataFrame:
    """One row an arm, structure, number of parts and budget, of the episodes (budgets.load) of one data set.

    em with its interval, and em_difference to the arm `baseline` over the questions and seeds that both answered; both
    resample seeds and questions (seed_bootstrap). Infrastructure failures are left out.
    """
    rows: list[dict[str, Any]] = []
    counted = episodes[~episodes["failed"]]
    for kind, value in budgets_of(budgets):
        limited = counted if kind == UNLIMITED else under(counted, **{kind: value})
        for structure, hops, group in by_parts(limited):
            arms = dict(list(group.groupby("arm", sort=False)))
            for arm, answers in arms.items():
                row = {"arm": arm, "structure": structure, "hops": hops, "budget": kind, "value": value}
                em = seed_bootstrap.share(seed_bootstrap.matrix(answers, "em"), confidence, samples)
                row |= {"n": len(answers), "seeds": answers["seed"].nunique()}
                row |= {"em": em.value, "em_low": em.low, "em_high": em.high}
                row |= {"decomposition_ratio": answers["decomposed"].mean(), "turns": answers["llm_calls"].mean()}
                rows.append(row | difference(answers, arms.get(baseline), arm == baseline, confidence, samples))
    table = pd.DataFrame(rows)
    order = list(dict.fromkeys(table["hops"]))
    return table.sort_values("hops", key=lambda column: column.map(order.index), kind="stable", ignore_index=True)


def difference(
    ours: pd.DataFrame, theirs: pd.DataFrame | None, same: bool, confidence: float, samples: int
) -> dict[str, float]:
    """em_difference with its interval; NaN for the baseline itself, and where it has none of the questions."""
    estimate = seed_bootstrap.NOTHING
    if theirs is not None and not same:
        mine, others = seed_bootstrap.paired(ours, theirs, "em")
        if mine.size:
            estimate = seed_bootstrap.mean(mine - others, confidence, samples)
    names = ("em_difference", "em_difference_low", "em_difference_high")
    return dict(zip(names, (estimate.value, estimate.low, estimate.high), strict=True))
