"""Every arm against the baseline arm on the same questions."""

from __future__ import annotations

import pandas as pd

from parallelsearch.evaluation import intervals, paired_tests

FIGURES = {"em": "em", "decomposition_ratio": "decomposed", "turns": "llm_calls"}  # figure -> column of the episodes
COLUMNS = [
    "arm",
    "seed",
    "structure",
    "pairs",
    *(
        f"{figure}_{part}"
        for figure in FIGURES
        for part in ("difference", "difference_low", "difference_high", "p", "p_holm", "detectable")
    ),
]


def compare(episodes: pd.DataFrame, baseline: str, confidence: float = 0.95, samples: int = 2000) -> pd.DataFrame:
    """Differences to the arm `baseline` of the same seed, over the questions both answered, by structure (COLUMNS).

    `episodes` are those of one data set (metrics.load). `p`: mid-p McNemar test for EM, sign-flip test for the others;
    `p_holm`: adjusted for all rows of the figure; `detectable`: paired_tests.minimal_detectable. Infrastructure
    failures are left out. The baseline, and arms without its questions, have no row.
    """
    question = ["seed", "structure", "dataset", "split", "qid"]
    counted = episodes[~episodes["failed"]]
    theirs = counted[counted["arm"] == baseline].set_index(question).add_suffix("_baseline")
    rows = []
    for arm in counted["arm"].unique():
        if arm == baseline:
            continue
        pairs = counted[counted["arm"] == arm].set_index(question).join(theirs, how="inner")
        for (seed, structure), group in pairs.groupby(["seed", "structure"], sort=False):
            row = {"arm": arm, "seed": seed, "structure": structure, "pairs": len(group)}
            for figure, column in FIGURES.items():
                ours, others = group[column], group[f"{column}_baseline"]
                estimate = intervals.paired_difference(ours, others, confidence, samples)
                row[f"{figure}_difference"] = estimate.value
                row[f"{figure}_difference_low"] = estimate.low
                row[f"{figure}_difference_high"] = estimate.high
                row[f"{figure}_p"] = (
                    paired_tests.mcnemar(ours, others)
                    if figure == "em"
                    else paired_tests.sign_flip(ours, others, samples)
                )
                row[f"{figure}_detectable"] = paired_tests.minimal_detectable(ours, others, confidence)
            rows.append(row)
    table = pd.DataFrame(rows, columns=COLUMNS)
    for figure in FIGURES:
        table[f"{figure}_p_holm"] = paired_tests.holm(table[f"{figure}_p"].astype(float))
    return table
