"""The time of an episode if all look-ups of a search turn were made at once, and if they were made one by one.

Wall time of single episodes says little on a shared machine. Here every generated token and every look-up has one
price, its mean over all episodes of a data set, arms together, at the batch size of the evaluation. A search turn costs
one look-up, however many sub-queries it holds; `one_by_one_seconds` is the same with every sub-query paid for.
"""

from __future__ import annotations

import pandas as pd


def add_critical_path(episodes: pd.DataFrame) -> pd.DataFrame:
    """`episodes` (evaluation.metrics.load) with the columns critical_path_seconds and one_by_one_seconds.

    Infrastructure failures set no price. A data set without a search has no price of a look-up, which is then 0.
    """
    parts = []
    for _, group in episodes.groupby("dataset", sort=False):
        paid = group[~group["failed"]]
        token = _price(paid["generate_seconds"], paid["model_tokens"])
        look_up = _price(paid["search_seconds"], paid["sub_queries"])
        generated = token * group["model_tokens"]
        parts.append(
            group.assign(
                critical_path_seconds=generated + look_up * group["searches"],
                one_by_one_seconds=generated + look_up * group["sub_queries"],
            )
        )
    return pd.concat(parts).loc[episodes.index]


def _price(seconds: pd.Series, units: pd.Series) -> float:
    total = units.sum()
    return float(seconds.sum() / total) if total else 0.0
