"""The study at a glance: the baseline and the arm that searches in parallel, by the number of parts of a question."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from parallelsearch.errors import DataError
from parallelsearch.evaluation import seed_bootstrap
from parallelsearch.evaluation.budget_sweep import ALL, SEVERAL
from parallelsearch.report.drawing import Drawing, canvas, styles
from parallelsearch.report.findings import questions_of
from parallelsearch.report.study import Study
from parallelsearch.report.tables import only_dataset

PANELS = {
    "em": "right answers within the limits",
    "em_unlimited": "right answers without limits",
    "llm_calls": "LLM calls within the limits",
}


def gain(study: Study) -> Drawing:
    """EM within and without the study's limits and LLM calls, of two arms. DataError: no arm stands beside another."""
    arm, dataset = study.treatment, only_dataset(study)
    episodes = {"em": study.of_dataset(dataset)}
    if study.unlimited is not None:
        episodes["em_unlimited"] = study.unlimited[study.unlimited["dataset"] == dataset]
    parts = {name: questions_of(chosen) for name, chosen in episodes.items()}
    if arm is None or parts["em"] is None:
        raise DataError("no arm has answered parallel questions beside the baseline, so there is no gain to draw.")
    parts["llm_calls"] = parts["em"]
    arms = [study.settings.baseline, arm]
    data = pd.DataFrame(
        [row for name in PANELS if parts.get(name) for row in _bars(study, name, parts[name] or {}, arms)]
    )
    look = styles(study.all_arms)
    shown = [name for name in PANELS if name in set(data["figure"])]
    with canvas(1, len(shown), 3.0 * len(shown), 3.1) as (figure, axes):
        for axis, name in zip(axes[0], shown, strict=True):
            _panel(axis, data[data["figure"] == name], arms, look)
            axis.set_title(PANELS[name], fontsize=10, fontweight="bold")
            axis.set_ylim(0, 1.08 if name.startswith("em") else None)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=10)
    caption = (
        f"{dataset}, parallel questions by their number of parts: share answered right and LLM calls a question,"
        f" {arm} beside {arms[0]}; whiskers: {study.settings.evaluation.confidence:.0%} intervals (questions, seeds)."
    )
    return Drawing("gain", caption, figure, data)


def _bars(study: Study, name: str, parts: dict[str, pd.DataFrame], arms: list[str]) -> list[dict[str, Any]]:
    evaluation, rows = study.settings.evaluation, []
    for hops in [hops for hops in parts if hops not in (ALL, SEVERAL)] or [ALL]:
        for arm in arms:
            answers = parts[hops][parts[hops]["arm"] == arm]
            if answers.empty:
                continue
            values = seed_bootstrap.matrix(answers, "llm_calls" if name == "llm_calls" else "em")
            interval = seed_bootstrap.mean if name == "llm_calls" else seed_bootstrap.share
            found = interval(values, evaluation.confidence, evaluation.bootstrap_samples)
            row = {"figure": name, "hops": hops, "arm": arm, "n": len(answers), "seeds": answers["seed"].nunique()}
            rows.append(row | {"value": found.value, "low": found.low, "high": found.high})
    return rows


def _panel(axis: Any, data: pd.DataFrame, arms: list[str], look: dict[str, Any]) -> None:
    groups = list(dict.fromkeys(data["hops"]))
    for place, arm in enumerate(arms):
        own = data[data["arm"] == arm]
        places = np.array([groups.index(hops) for hops in own["hops"]]) + (place - 0.5) * 0.38
        spread = np.nan_to_num(np.array([own["value"] - own["low"], own["high"] - own["value"]])).clip(min=0)
        axis.bar(
            places, own["value"], 0.36, yerr=spread, color=look[arm]["color"], label=arm,
            hatch=look[arm]["hatch"], edgecolor="white", linewidth=0.4, error_kw={"elinewidth": 1, "capsize": 2.5},
        )  # fmt: skip
        decimals = 2 if (data["figure"] != "llm_calls").all() else 1
        for x, value, high in zip(places, own["value"], own["high"], strict=True):
            axis.annotate(
                f"{value:.{decimals}f}", (x, np.nanmax([value, high])), (0, 2), textcoords="offset points", ha="center",
                fontsize=8,
            )  # fmt: skip
    axis.set_xticks(range(len(groups)), ["all questions" if hops == ALL else f"{hops} parts" for hops in groups])
    axis.grid(axis="x", visible=False)
    axis.margins(y=0.12)
