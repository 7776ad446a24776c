"""DATASET_published: every published number of a data set beside ours, with the distance and what to know about it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd

from parallelsearch.evaluation import metrics
from parallelsearch.report.published import PUBLISHED_DIR, Published, PublishedRow, read_all_published
from parallelsearch.report.study import Study
from parallelsearch.report.table import Table

FIGURES = ("em", "decomposition_ratio", "turns")
_COLUMNS = [
    "source", "table", "method", "model", "subset", "protocol", "arm", "seed", "n",
    *(f"{figure}{end}" for figure in FIGURES for end in ("", "_low", "_high", "_published", "_distance", "_within")),
    "caveats",
]  # fmt: skip


def published_table(study: Study, dataset: str, published: Path = PUBLISHED_DIR) -> Table:
    """A row for each published row of `dataset`, protocol, and seed of the arm that answers to its method.

    `_distance` is ours minus theirs, `_within` says whether theirs lies in our interval. Rows whose method has no arm
    in the study show the published figures alone. Without any published row the table says so in a note.
    """
    protocols = {"ours": study} | ({"published": study.as_published} if study.as_published else {})
    rows: list[dict[str, Any]] = []
    notes = [
        "distance: ours minus published; within: whether the published figure lies in our interval over questions.",
        f"Intervals: {study.settings.evaluation.confidence:.0%}, Wilson for shares, bootstrap for means.",
        *(f"protocol {name}: {note}" for name, part in protocols.items() for note in part.provenance_notes(dataset)),
    ]
    ours = pd.concat([_by_subset(part, dataset).assign(protocol=name) for name, part in protocols.items()])
    for numbers in read_all_published(published):
        used: set[str] = set()
        for row in numbers.every_row:
            if numbers.subsets[row.subset].dataset == dataset:
                rows += _rows(row, numbers, ours)
                used.update(row.caveats)
        notes += [f"{numbers.source.title}, {key}: {text}" for key, text in numbers.caveats.items() if key in used]
    if not rows:
        notes.append(f"No published number of {dataset} is known ({published}).")
    return Table(
        f"{dataset}_published",
        f"{dataset}: published numbers beside ours",
        pd.DataFrame(rows, columns=_COLUMNS),
        notes,
        {f"turns{end}": 2 for end in ("_published", "_distance")},
    )


def _by_subset(study: Study, dataset: str) -> pd.DataFrame:
    """Our figures by arm, seed and structure; '' stands for all structures together."""
    evaluation = study.settings.evaluation
    whole = metrics.summarise(
        study.of_dataset(dataset), ("arm", "seed"), evaluation.confidence, evaluation.bootstrap_samples
    )
    return pd.concat([study.summary(dataset), whole.assign(structure="")])


def _rows(row: PublishedRow, numbers: Published, ours: pd.DataFrame) -> list[dict[str, Any]]:
    subset, arm = numbers.subsets[row.subset], numbers.arms.get(row.method, "")
    theirs = {
        "source": numbers.source.title,
        "table": row.table,
        "method": row.method if row.lambda_d is None else f"{row.method} ({row.lambda_d:.2f}, {row.lambda_s:.2f})",
        "model": row.model,
        "subset": row.subset,
        "caveats": ", ".join(row.caveats),
        **{f"{figure}_published": getattr(row, figure) for figure in FIGURES},
    }
    if row.lambda_d is not None:  # a cell of an ablation grid; the table ablation_grid compares those
        arm = ""
    mine = ours[(ours["arm"] == arm) & (ours["structure"] == (subset.structure or ""))]
    if mine.empty:
        return [theirs]
    return [{**theirs, **_compared(found, row)} for found in mine.to_dict("records")]


def _compared(found: dict[Any, Any], row: PublishedRow) -> dict[str, Any]:
    compared: dict[str, Any] = {name: found[name] for name in ("protocol", "arm", "seed", "n")}
    for figure in FIGURES:
        value, low, high = (found[f"{figure}{end}"] for end in ("", "_low", "_high"))
        compared |= {figure: value, f"{figure}_low": low, f"{figure}_high": high}
        theirs = getattr(row, figure)
        if theirs is not None and not math.isnan(value):
            within = "yes" if low <= theirs <= high else "no"
            compared |= {f"{figure}_distance": value - theirs, f"{figure}_within": within}
    return compared
