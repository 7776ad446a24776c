"""The figure of exact match over the number of passages shown for each look-up (the paper's Figure 6)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd

from parallelsearch.errors import DataError
from parallelsearch.report.drawing import Drawing, canvas, legend, styles
from parallelsearch.report.episode_figures import label_panel, structures_of
from parallelsearch.report.study import Study

_FIGURES = ["em", "em_low", "em_high"]


def top_k(study: Study) -> Drawing:
    """EM over top-k by structure; a line joins arms that differ in nothing else. DataError: all have the same top-k."""
    arms = _settings(study)
    if len({passages for passages, _ in arms.values()}) < 2:
        raise DataError("all arms were shown the same number of passages; add an arm with another agent.top_k.")
    parts = []
    for dataset in study.datasets:
        means = study.summary(dataset).groupby(["arm", "structure"], sort=False)[_FIGURES].mean()
        parts.append(means.reset_index().assign(dataset=dataset))
    data = pd.concat(parts)
    data["top_k"] = [arms[arm][0] for arm in data["arm"]]
    first = {rest: arm for arm in reversed(study.arms) for rest in [arms[arm][1]]}
    data["line"] = [first[arms[arm][1]] for arm in data["arm"]]
    data = data[["dataset", "structure", "line", "arm", "top_k", *_FIGURES]]
    shown = structures_of(data)
    look = styles(study.all_arms)
    with canvas(len(parts), len(shown), 2.8 * len(shown) + 1, 2.9 * len(parts) + 0.4) as (figure, axes):
        for row, dataset in zip(axes, study.datasets, strict=True):
            for axis, structure in zip(row, shown, strict=True):
                panel = data[(data["dataset"] == dataset) & (data["structure"] == structure)]
                for name in dict.fromkeys(panel["line"]):
                    _line(axis, panel[panel["line"] == name].sort_values("top_k"), name, look[name])
                label_panel(
                    axis, f"{structure} ({dataset})" if len(parts) > 1 else structure, "passages a look-up", "EM"
                )
                axis.set_ylim(-0.03, 1.05)
                axis.xaxis.get_major_locator().set_params(integer=True)
        legend(figure, axes)
    caption = (
        "Exact match over the passages shown for each look-up; a line joins arms that differ in nothing else. Whiskers"
        " are intervals over questions; means over seeds."
    )
    return Drawing("top_k", caption, figure, data)


def _settings(study: Study) -> dict[str, tuple[int, str]]:
    """arm -> (top-k, everything else in the configuration of its evaluation, as text)."""
    found = {}
    for path, origin in study.provenance.items():
        agent = dict(origin.config.get("agent", {}))
        for name in ("top_k", "max_sub_query_result_tokens"):  # more passages need more room
            agent.pop(name, None)
        rest = json.dumps({**origin.config, "agent": agent}, sort_keys=True)
        for arm in pd.read_parquet(path, columns=["arm"])["arm"].unique():
            found[str(arm)] = (origin.top_k, rest)
    return found


def _line(axis: Any, points: pd.DataFrame, name: str, look: dict[str, str]) -> None:
    spread = np.array([points["em"] - points["em_low"], points["em_high"] - points["em"]])
    axis.errorbar(
        points["top_k"],
        points["em"],
        yerr=np.nan_to_num(spread).clip(min=0),
        color=look["color"],
        marker=look["marker"],
        elinewidth=0.8,
        label=name,
    )
