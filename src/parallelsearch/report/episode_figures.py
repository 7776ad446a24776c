"""Figures of what happened in the episodes: how many turns, how much text, at what cost, and who split what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from parallelsearch.evaluation.metrics import STRUCTURES
from parallelsearch.report.drawing import Drawing, canvas, dodge, grouped_bars, legend, styles
from parallelsearch.report.study import Study

_CURVED = ("parallel", "sequential")  # structures with a panel of their own in the distributions


def turn_distribution(study: Study) -> Drawing:
    """Share of episodes that needed at most so many turns (the paper's Figure 3), by arm; seeds together."""
    return _distribution(study, "turn_distribution", "llm_calls", "turns", "share of episodes with at most so many")


def response_length(study: Study) -> Drawing:
    """Share of episodes whose generations have at most so many tokens (the paper's Figure 4 shows means), by arm."""
    return _distribution(study, "response_length", "model_tokens", "tokens generated", "share of episodes")


def pareto(study: Study) -> Drawing:
    """Exact match against LLM calls, a point an arm: up and to the left is better; the step line joins what no arm
    beats on both."""
    from matplotlib.ticker import MaxNLocator

    summaries = {dataset: study.summary(dataset) for dataset in study.datasets}
    rows = []
    for dataset, summary in summaries.items():
        means = summary.groupby(["structure", "arm"], sort=False)[["em", "em_low", "em_high", "llm_calls"]].mean()
        for structure, group in means.reset_index().groupby("structure", sort=False):
            points = group.assign(dataset=dataset, structure=structure)
            rows.append(points.assign(best=_unbeaten(points["llm_calls"], points["em"])))
    data = pd.concat(rows)[["dataset", "structure", "arm", "llm_calls", "em", "em_low", "em_high", "best"]]
    shown = structures_of(data)
    look = styles(study.all_arms)
    most = data["llm_calls"].max()  # one scale for all panels
    with canvas(len(summaries), len(shown), 2.6 * len(shown) + 1, 2.9 * len(summaries) + 0.4) as (figure, axes):
        for line, dataset in zip(axes, summaries, strict=True):
            for axis, structure in zip(line, shown, strict=True):
                panel = data[(data["dataset"] == dataset) & (data["structure"] == structure)]
                edge = panel[panel["best"]].sort_values("llm_calls")
                axis.step(edge["llm_calls"], edge["em"], where="post", color="#aaaaaa", linewidth=1, zorder=0)
                shifts = dict(zip(study.arms, dodge(len(study.arms), 0.05 * most), strict=True))
                for row in panel.to_dict("records"):
                    spread = [[row["em"] - row["em_low"]], [row["em_high"] - row["em"]]]
                    axis.errorbar(
                        row["llm_calls"] + shifts[row["arm"]],
                        row["em"],
                        yerr=np.nan_to_num(np.array(spread)).clip(min=0),
                        fmt=look[row["arm"]]["marker"],
                        color=look[row["arm"]]["color"],
                        markerfacecolor="none",
                        elinewidth=0.8,
                        label=row["arm"],
                    )
                label_panel(axis, f"{structure} ({dataset})" if len(summaries) > 1 else structure, "LLM calls", "EM")
                axis.set_ylim(-0.03, 1.05)
                axis.set_xlim(0, 1.08 * most)
                axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        legend(figure, axes)
    caption = (
        "Exact match against LLM calls a question; up and to the left is better. The grey steps join the arms that no"
        " other beats on both. Whiskers are intervals over questions; means over seeds; arms are drawn a little apart."
    )
    return Drawing("pareto", caption, figure, data)


def critical_path(study: Study) -> Drawing:
    """Seconds of an episode with a search turn paid once (bar) and with every sub-query paid for (black line)."""
    figures = ["critical_path_seconds", "one_by_one_seconds"]
    rows = [
        study.summary(dataset)
        .groupby(["arm", "structure"], sort=False)[figures]
        .mean()
        .reset_index()
        .assign(dataset=dataset)
        for dataset in study.datasets
    ]
    data = pd.concat(rows)[["dataset", "arm", "structure", *figures]]
    look = styles(study.all_arms)
    with canvas(1, len(rows), max(8.0, 5.2 * len(rows)), 3.4) as (figure, axes):
        for axis, dataset in zip(axes[0], study.datasets, strict=True):
            panel = data[data["dataset"] == dataset]
            structures = structures_of(panel)
            bars = panel.rename(columns={"critical_path_seconds": "value"})
            places = grouped_bars(axis, bars, structures, study.arms, look)
            for row in panel.to_dict("records"):
                place, half = places[row["arm"], row["structure"]], 0.4 / len(study.arms)
                axis.hlines(row["one_by_one_seconds"], place - half, place + half, color="black", linewidth=1.4)
            axis.set_xticks(range(len(structures)), structures)
            axis.grid(axis="x", visible=False)
            label_panel(axis, dataset, "", "seconds on the critical path")
        legend(figure, axes)
    caption = (
        "Bars: every token and look-up of an episode at its mean price over all arms, a search turn paid once. Black"
        " lines: every sub-query paid for. The gap is what is saved while searching; the rest is saved by fewer tokens."
    )
    return Drawing("critical_path", caption, figure, data)


def confusion(study: Study) -> Drawing:
    """Share of episodes with a parallel search by question type and arm, with the numbers of episodes."""
    episodes = study.episodes[~study.episodes["failed"]]
    cells = episodes.groupby(["dataset", "structure", "type", "arm"], sort=False)["decomposed"].agg(["sum", "count"])
    data = cells.reset_index().rename(columns={"sum": "decomposed", "count": "episodes"})
    data["share"] = data["decomposed"] / data["episodes"]
    order = {name: place for place, name in enumerate(STRUCTURES)}
    types = sorted(
        {(row["dataset"], row["structure"], row["type"]) for row in data.to_dict("records")},
        key=lambda key: (key[0], order[key[1]], key[2]),
    )
    with canvas(1, 1, 1.5 * len(study.arms) + 3, 0.42 * len(types) + 1.4) as (figure, axes):
        axis = axes[0, 0]
        grid = np.full((len(types), len(study.arms)), np.nan)
        for row in data.to_dict("records"):
            place = types.index((row["dataset"], row["structure"], row["type"])), study.arms.index(row["arm"])
            grid[place] = row["share"]
            axis.text(
                place[1],
                place[0],
                f"{row['share']:.2f} ({int(row['decomposed'])} of {int(row['episodes'])})",
                ha="center",
                va="center",
                fontsize=7,
                color="white" if row["share"] > 0.6 else "black",
            )
        axis.imshow(grid, cmap="Blues", vmin=0, vmax=1.3, aspect="auto")
        axis.set_xticks(range(len(study.arms)), study.arms, fontsize=8)
        several = len(study.datasets) > 1
        names = [f"{kind} [{structure}]" + (f" ({dataset})" if several else "") for dataset, structure, kind in types]
        axis.set_yticks(range(len(types)), names, fontsize=8)
        axis.grid(visible=False)
    caption = (
        "Share of episodes with a search of two or more different sub-queries, by question type [structure] and arm."
        " Wanted: 1 on parallel and mixed questions, 0 on sequential and single ones."
    )
    return Drawing("confusion", caption, figure, data)


def _distribution(study: Study, name: str, column: str, label: str, title: str) -> Drawing:
    episodes = study.episodes[~study.episodes["failed"]]
    rows = []
    for (dataset, structure, arm), group in episodes.groupby(["dataset", "structure", "arm"], sort=False):
        counts = group[column].value_counts().sort_index()
        for value, share in (counts.cumsum() / counts.sum()).items():
            rows.append({"dataset": dataset, "structure": structure, "arm": arm, label: value, "share": share})
    data = pd.DataFrame(rows)
    panels = [structure for structure in structures_of(data) if structure in _CURVED] or structures_of(data)
    look = styles(study.all_arms)
    with canvas(len(study.datasets), len(panels), 4.2 * len(panels) + 0.6, 2.9 * len(study.datasets) + 0.4) as made:
        figure, axes = made
        for line, dataset in zip(axes, study.datasets, strict=True):
            for axis, structure in zip(line, panels, strict=True):
                panel = data[(data["dataset"] == dataset) & (data["structure"] == structure)]
                for place, arm in enumerate(study.arms):
                    curve = panel[panel["arm"] == arm]
                    if len(curve):
                        width = 1.2 + 4.4 * (
                            1 - (place + 1) / len(study.arms)
                        )  # of equal curves each shows under the next
                        _steps(axis, curve[label].to_list(), curve["share"].to_list(), arm, look[arm], width)
                axis.set_xlim(0, 1.05 * data[label].max())
                axis.xaxis.get_major_locator().set_params(integer=True)
                label_panel(axis, f"{structure} ({dataset})" if len(study.datasets) > 1 else structure, label, "share")
                axis.set_ylim(-0.03, 1.05)
        legend(figure, axes)
    return Drawing(name, f"{label.capitalize()} of an episode: {title}; all seeds together.", figure, data)


def _steps(axis: Any, values: list[float], shares: list[float], arm: str, look: dict[str, str], width: float) -> None:
    every = max(1, len(values) // 8)
    axis.step(
        [0.0, *values],
        [0.0, *shares],
        where="post",
        color=look["color"],
        marker=look["marker"],
        markevery=(1, every),
        markersize=4 + width,
        markerfacecolor="white",
        linewidth=width,
        label=arm,
    )


def _unbeaten(calls: pd.Series, em: pd.Series) -> list[bool]:
    """For each arm whether no other has at most as many calls and at least its EM, and is better in one of them."""
    points = list(zip(calls, em, strict=True))
    return [not any(c <= calls_ and e >= em_ and (c < calls_ or e > em_) for c, e in points) for calls_, em_ in points]


def structures_of(data: pd.DataFrame) -> list[str]:
    return [name for name in STRUCTURES if name in set(data["structure"])]


def label_panel(axis: Any, title: str, x: str, y: str) -> None:
    axis.set_title(title, fontsize=9)
    axis.set_xlabel(x)
    axis.set_ylabel(y)
