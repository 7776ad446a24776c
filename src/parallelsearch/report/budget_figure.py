"""The figure of accuracy against budget: EM of parallel questions over the most LLM calls, and over response tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from parallelsearch.errors import DataError
from parallelsearch.evaluation.budget_sweep import ALL, SEVERAL
from parallelsearch.evaluation.budgets import UNLIMITED
from parallelsearch.records import Structure
from parallelsearch.report.drawing import Drawing, canvas, dodge, legend, styles
from parallelsearch.report.episode_figures import label_panel
from parallelsearch.report.study import Study

BUDGETS = {"llm_calls": "LLM calls, at most", "response_tokens": "response tokens, at most"}
MOST_ROWS = 3


def accuracy_by_budget(study: Study) -> Drawing:
    """EM over budget by arm; a row of panels for each number of parts. DataError where nothing was swept."""
    if study.unlimited is None:
        raise DataError("no episodes without the study's limits were given, so there is no accuracy against budget.")
    names = [name for name in study.datasets if name in set(study.unlimited["dataset"])]
    data = pd.concat([study.sweep(name).assign(dataset=name) for name in names])
    data = data[data["structure"] == Structure.PARALLEL]
    columns = ["dataset", "hops", "arm", "budget", "value", "n", "seeds", "em", "em_low", "em_high"]
    rows = _rows(data)
    if not rows:
        raise DataError("no parallel question was answered without the study's limits.")
    kinds = [kind for kind in BUDGETS if kind in set(data["budget"])]
    look = styles(study.all_arms)
    arms = [arm for arm in study.arms if arm in set(data["arm"])]
    with canvas(len(rows), len(kinds), 4.6 * len(kinds) + 0.4, 2.6 * len(rows) + 0.7) as (figure, axes):
        for line, (dataset, hops) in zip(axes, rows, strict=True):
            panel = data[(data["dataset"] == dataset) & (data["hops"] == hops)]
            for axis, kind in zip(line, kinds, strict=True):
                _panel(axis, panel, kind, arms, look)
                asked = "parallel questions" + ("" if hops == ALL else f" of {hops} parts")
                label_panel(axis, asked + (f" ({dataset})" if len(names) > 1 else ""), BUDGETS[kind], "EM")
        legend(figure, axes)
    caption = (
        "Exact match on parallel questions over the budget of an episode; none: without a limit. Bands and whiskers are"
        f" {study.settings.evaluation.confidence:.0%} intervals over questions and seeds; arms stand a little apart."
    )
    return Drawing("accuracy_by_budget", caption, figure, data[columns])


def _rows(data: pd.DataFrame) -> list[tuple[str, str]]:
    """(data set, hops) of each row of panels: the numbers of parts where they differ, of one data set alone."""
    datasets = list(dict.fromkeys(data["dataset"]))
    numbers = [hops for hops in dict.fromkeys(data["hops"]) if hops not in (ALL, SEVERAL)]
    if len(datasets) == 1 and numbers:
        return [(datasets[0], hops) for hops in numbers[:MOST_ROWS]]
    return [(dataset, ALL) for dataset in datasets[:MOST_ROWS]]


def _panel(axis: Any, panel: pd.DataFrame, kind: str, arms: list[str], look: dict[str, Any]) -> None:
    values = sorted(panel.loc[panel["budget"] == kind, "value"].unique())
    step = min(np.diff(values), default=1.0)
    free = values[-1] + 1.5 * step
    for arm, shift in zip(arms, dodge(len(arms), 0.3 * step), strict=True):
        own = panel[panel["arm"] == arm]
        curve, last = own[own["budget"] == kind].sort_values("value"), own[own["budget"] == UNLIMITED]
        style = {
            "color": look[arm]["color"],
            "marker": look[arm]["marker"],
            "markerfacecolor": "white",
            "markersize": 5,
        }
        places = curve["value"] + shift
        axis.fill_between(places, curve["em_low"], curve["em_high"], color=look[arm]["color"], alpha=0.12, linewidth=0)
        axis.plot(places, curve["em"], linewidth=1.5, label=arm, **style)
        spread = np.nan_to_num(np.array([last["em"] - last["em_low"], last["em_high"] - last["em"]])).clip(min=0)
        axis.errorbar(free + shift, last["em"], yerr=spread, elinewidth=0.9, **style)
    axis.axvline(values[-1] + 0.75 * step, color="#999999", linewidth=0.8, linestyle=":")
    axis.set_xticks([*values, free], [*(f"{value:g}" for value in values), "none"])
    axis.set_ylim(-0.03, 1.03)
