"""The table of all figures; those of training and of the main results. Others are in episode_figures.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from parallelsearch.errors import DataError
from parallelsearch.evaluation.metrics import STRUCTURES
from parallelsearch.records import Structure
from parallelsearch.report.budget_figure import accuracy_by_budget
from parallelsearch.report.drawing import Drawing, canvas, grouped_bars, legend, styles
from parallelsearch.report.episode_figures import (
    confusion,
    critical_path,
    pareto,
    response_length,
    turn_distribution,
)
from parallelsearch.report.gain_figure import gain
from parallelsearch.report.study import Study
from parallelsearch.report.tables import only_dataset
from parallelsearch.report.top_k_figure import top_k

# key in metrics.jsonl -> title of the panel
CURVES = {
    "reward_mean": "reward",
    "em": "exact match",
    "well_formed": "well-formed episodes",
    "decomposition_ratio/parallel": "decomposition ratio, parallel questions",
    "decomposition_ratio/sequential": "decomposition ratio, sequential questions",
    "turns": "turns",
    "loss": "loss on demonstrations",
}
SHARES = ("em", "well_formed", "decomposition_ratio/parallel", "decomposition_ratio/sequential")
BARS = {"em": "exact match", "decomposition_ratio": "decomposition ratio", "turns": "turns"}


def build(name: str, study: Study) -> Drawing:
    """The figure called `name`; an unknown name is a DataError that lists the known ones."""
    if name not in FIGURES:
        raise DataError(f"there is no figure '{name}'; known figures: {', '.join(FIGURES)}.")
    return FIGURES[name](study)


def training_curves(study: Study) -> Drawing:
    """Sampled figures of the training runs over steps: one line a run, one colour an arm, a panel for what was logged.

    Runs that learned from demonstrations have a loss and no sampled figures.
    """
    rows = [
        {"arm": run.arm, "seed": run.seed, "step": int(step["step"]), "figure": key, "value": float(step[key])}
        for run in study.runs
        for step in run.metrics
        for key in CURVES
        if step.get(key) is not None
    ]
    if not rows:
        raise DataError("no training run with a step was given; name the folders train/*/seed*.")
    data = pd.DataFrame(rows)
    look = styles(study.all_arms)
    present = [key for key in CURVES if key in set(data["figure"])]
    lines = -(-len(present) // 3)
    with canvas(lines, min(3, len(present)), width=10, height=2.7 * lines) as (figure, axes):
        for axis in list(axes.flat)[len(present) :]:
            axis.set_visible(False)
        for axis, key in zip(axes.flat, present, strict=False):
            shown = data[data["figure"] == key]
            for arm in shown["arm"].unique():
                runs = shown[shown["arm"] == arm]
                for number, (_, line) in enumerate(runs.groupby("seed")):
                    axis.plot(
                        line["step"],
                        line["value"],
                        color=look[arm]["color"],
                        marker=look[arm]["marker"],
                        markevery=max(1, len(line) // 8),
                        markersize=4,
                        linewidth=1.4,
                        alpha=1 if number == 0 else 0.55,
                        label=arm if number == 0 else None,
                    )
            axis.set_title(CURVES[key], fontsize=9)
            axis.set_xlabel("step")
            if key in SHARES:
                axis.set_ylim(-0.03, 1.03)
            axis.xaxis.get_major_locator().set_params(integer=True)
        legend(figure, axes)
    caption = "Sampled while training; one line a seed. Rewards of arms with different weights are not comparable."
    return Drawing("training_curves", caption, figure, data)


def by_structure(study: Study) -> Drawing:
    """Exact match, decomposition ratio and turns by structure and arm, one row of panels a data set."""
    summaries = {dataset: study.summary(dataset) for dataset in study.datasets}
    rows = []
    for dataset, summary in summaries.items():
        for (arm, structure), group in summary.groupby(["arm", "structure"], sort=False):
            for key in BARS:
                row = {"dataset": dataset, "arm": arm, "structure": structure, "seeds": len(group), "figure": key}
                row |= {"value": group[key].mean(), "n": int(group["n"].sum())}
                row |= {"low": group[f"{key}_low"].mean(), "high": group[f"{key}_high"].mean()}
                rows.append(row)
    data = pd.DataFrame(rows)
    look = styles(study.all_arms)
    with canvas(len(summaries), len(BARS), width=11, height=3.4 * len(summaries) + 0.3) as (figure, axes):
        for line, (dataset, summary) in zip(axes, summaries.items(), strict=True):
            structures = [name for name in STRUCTURES if name in set(summary["structure"])]
            for axis, (key, title) in zip(line, BARS.items(), strict=True):
                shown = data[(data["dataset"] == dataset) & (data["figure"] == key)]
                places = grouped_bars(axis, shown, structures, study.arms, look)
                for position, arm in _seed_dots(summary, study.arms):
                    points = position.set_index("structure")[key]
                    axis.plot(
                        [places[arm, structure] for structure in points.index], points, ".", color="black", markersize=3
                    )
                axis.set_title(f"{title} ({dataset})" if len(summaries) > 1 else title, fontsize=9)
                axis.set_xticks(range(len(structures)), structures, fontsize=8)
                axis.grid(axis="x", visible=False)
                axis.set_ylim(0, None if key == "turns" else 1.05)
        legend(figure, axes)
    level = f"{study.settings.evaluation.confidence:.0%}"
    caption = (
        f"{', '.join(summaries)}: whiskers are {level} intervals over questions (Wilson, for turns bootstrap)."
        " With several seeds bars and whiskers are means over seeds and dots are the seeds."
    )
    return Drawing("by_structure", caption, figure, data)


def ablation_grid(study: Study) -> Drawing:
    """EM, decomposition ratio and turns on parallel questions over lambda_d x lambda_s, for the arms present."""
    dataset = only_dataset(study)
    summary = study.summary(dataset)
    summary = summary[summary["structure"] == Structure.PARALLEL]
    rows = []
    for run in study.runs:
        figures = summary[(summary["arm"] == run.arm) & (summary["seed"] == run.seed)]
        algorithm = run.config.get("training", {}).get("algorithm", "ppo")
        graded = run.has_reward and run.config["reward"].get("semantics") == "paper"
        if figures.empty or not graded or algorithm != "ppo":
            continue
        row = {"arm": run.arm, "seed": run.seed, "lambda_d": run.weight("lambda_d"), "lambda_s": run.weight("lambda_s")}
        rows.append(row | {key: float(figures.iloc[0][key]) for key in BARS})
    if not rows:
        raise DataError(f"no training run with the paper's reward has episodes of parallel questions of {dataset}.")
    data = pd.DataFrame(rows)
    cells = data.groupby(["lambda_d", "lambda_s"])
    with canvas(1, len(BARS), width=11, height=3.6) as (figure, axes):
        for axis, (key, title) in zip(axes.flat, BARS.items(), strict=True):
            grid = cells[key].mean().unstack("lambda_d").sort_index(ascending=False)
            names = (
                cells["arm"].agg(lambda arms: "\n".join(dict.fromkeys(arms))).unstack("lambda_d").reindex(grid.index)
            )
            _heat_map(axis, grid, names, decimals=2 if key == "turns" else 3, reverse=key == "turns")
            axis.set_title(f"{title}, parallel questions", fontsize=9)
    caption = (
        f"{dataset}, parallel questions: arms with the paper's reward over the weights of the decomposition (lambda_d)"
        " and search-count (lambda_s) rewards; empty cells were not trained; darker is better; means over seeds."
    )
    return Drawing("ablation_grid", caption, figure, data)


FIGURES: dict[str, Callable[[Study], Drawing]] = {
    "training_curves": training_curves,
    "by_structure": by_structure,
    "ablation_grid": ablation_grid,
    "turn_distribution": turn_distribution,
    "response_length": response_length,
    "pareto": pareto,
    "critical_path": critical_path,
    "confusion": confusion,
    "top_k": top_k,
    "accuracy_by_budget": accuracy_by_budget,
    "gain": gain,
}


def _seed_dots(summary: pd.DataFrame, arms: list[str]) -> list[tuple[pd.DataFrame, str]]:
    return [
        (group, arm)
        for arm in arms
        for _, group in summary[summary["arm"] == arm].groupby("seed")
        if summary["seed"].nunique() > 1
    ]


def _heat_map(axis: Any, grid: pd.DataFrame, names: pd.DataFrame, decimals: int, reverse: bool) -> None:
    values = grid.to_numpy(dtype=float)
    low, high = np.nanmin(values), np.nanmax(values)
    span = (high - low) or 1.0
    shade = (high - values if reverse else values - low) / span  # 0: worst, 1: best
    axis.imshow(shade, cmap="Blues", vmin=-0.15, vmax=1.35, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        if not math.isnan(value):
            text = f"{value:.{decimals}f}\n{names.to_numpy()[row, column]}"
            color = "white" if shade[row, column] > 0.6 else "black"
            axis.text(column, row, text, ha="center", va="center", fontsize=7, color=color)
    axis.set_xticks(range(len(grid.columns)), [f"{value:g}" for value in grid.columns])
    axis.set_yticks(range(len(grid.index)), [f"{value:g}" for value in grid.index])
    axis.set_xlabel("lambda_d")
    axis.set_ylabel("lambda_s")
    axis.grid(visible=False)
