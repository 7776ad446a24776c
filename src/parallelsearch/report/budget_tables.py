"""Two tables: DATASET_by_budget, what every arm answers under smaller and larger limits, and DATASET_by_parts, what
becomes of its answers by the number of parts and the kind of answer of a question."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pandas as pd

from parallelsearch.evaluation import metrics, seed_bootstrap
from parallelsearch.report.study import Study
from parallelsearch.report.table import Table

KINDS = ("name", "yes", "no", "number")
_NUMBER = re.compile(r"[\d.,\s]+(million|thousand|billion)?")
_INTERVALS = (
    "n: questions times seeds, infrastructure failures excluded. Intervals: {level:.0%}, questions and seeds resampled"
    " together (one seed: Wilson for shares, bootstrap over questions for differences)."
)


def by_budget(study: Study, dataset: str) -> Table:
    """Every arm under every budget, with the difference to the baseline arm; the rows without a limit stand last."""
    notes = [
        _INTERVALS.format(level=study.settings.evaluation.confidence),
        "budget, value: the most LLM calls or response tokens of an episode. The limits are not told to the model, so"
        " an episode under a smaller one is a prefix of the episode without: what does not fit counts as wrong.",
        f"em difference: to {study.settings.baseline} over the same questions and seeds.",
        "hops: parts of a parallel question; all: whatever their number.",
    ]
    title = f"{dataset}: accuracy against budget"
    return Table(f"{dataset}_by_budget", title, study.sweep(dataset).astype({"value": "Int64"}), notes)


def by_parts(study: Study, dataset: str) -> Table:
    """EM under the study's own budget by structure, number of parts and kind of answer, all seeds together."""
    evaluation, rows = study.settings.evaluation, []
    episodes = study.of_dataset(dataset)
    counted = episodes[~episodes["failed"]].assign(answer=episodes["golden_answers"].map(kind_of_answer))
    keys = ["arm", "structure", "hops", "answer"]
    for values, group in counted.groupby(keys, dropna=False):
        row: dict[str, Any] = dict(zip(keys, values, strict=True))
        em = seed_bootstrap.share(
            seed_bootstrap.matrix(group, "em"), evaluation.confidence, evaluation.bootstrap_samples
        )
        row |= {"seeds": group["seed"].nunique(), "n": len(group)}
        row |= {"em": em.value, "em_low": em.low, "em_high": em.high}
        rows.append(row | {"decomposition_ratio": group["decomposed"].mean(), "turns": group["llm_calls"].mean()})
    frame = pd.DataFrame(rows).astype({"hops": "Int64"})
    notes = [
        _INTERVALS.format(level=evaluation.confidence),
        "hops: passages that the answer needs; of a parallel question its parts. answer: kind of the golden answer.",
    ]
    ordered = metrics.in_order(frame, study.settings.arms)
    return Table(f"{dataset}_by_parts", f"{dataset}: arms by parts and kind of answer", ordered, notes)


def kind_of_answer(golden_answers: Iterable[str]) -> str:
    """One of KINDS, by the first golden answer."""
    first = next(iter(golden_answers), "").strip().casefold()
    if first in ("yes", "no"):
        return first
    return "number" if any(map(str.isdigit, first)) and _NUMBER.fullmatch(first) else "name"


def unlimited_em(unlimited: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """em_unlimited by arm, seed and structure of one data set."""
    counted = unlimited[~unlimited["failed"] & (unlimited["dataset"] == dataset)]
    return counted.groupby(["arm", "seed", "structure"])["em"].mean().rename("em_unlimited").reset_index()
