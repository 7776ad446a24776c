"""The tables of a study: DATASET_by_structure, _comparison, _details, ...; ablation_grid; training_summary."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from parallelsearch.errors import DataError
from parallelsearch.evaluation import metrics
from parallelsearch.evaluation.paired_tests import POWER
from parallelsearch.records import Structure
from parallelsearch.report.budget_tables import by_budget, by_parts, unlimited_em
from parallelsearch.report.published import PARALLELSEARCH, PUBLISHED_DIR, read_published
from parallelsearch.report.published_table import published_table
from parallelsearch.report.study import Study
from parallelsearch.report.table import Table
from parallelsearch.runs.training_runs import TrainingRun

BY_STRUCTURE_COLUMNS = [
    "arm", "seed", "structure", "n", "em", "em_low", "em_high", "f1", "decomposition_ratio", "turns", "llm_calls",
    "searches", "seconds",
]  # fmt: skip
PUBLISHED_SUBSETS = {"hotpotqa": "HotpotQA-par", "2wiki": "2wiki-par"}
ABLATION_FIGURES = ("em", "decomposition_ratio", "turns")
_ABLATION_COLUMNS = [
    "structure", "n", "em", "em_low", "em_high", "decomposition_ratio", "decomposition_ratio_low",
    "decomposition_ratio_high", "turns", "turns_low", "turns_high",
    *(f"{figure}_difference{end}" for figure in ABLATION_FIGURES for end in ("", "_low", "_high")),
    "em_p", "em_p_holm",
]  # fmt: skip
WINDOW = 5  # steps at either end of a run that training_summary averages

_DEFINITIONS = (
    "n: questions answered, infrastructure failures excluded; decomposition ratio: share of episodes with a search of"
    " two or more different sub-queries; turns: generations of the model; seconds: wall time of an"
    " episode, waiting for others in its batch included."
)


def build(name: str, study: Study, published: Path = PUBLISHED_DIR) -> Table:
    """The table `name`, with the numbers of the folder `published`; a DataError lists the known names."""
    if name == "ablation_grid":
        return ablation_grid(study, published)
    if name == "training_summary":
        return training_summary(study)
    if name.endswith("_published"):
        return published_table(study, name.removesuffix("_published"), published)
    if name == "em_by_dataset":
        return em_by_dataset(study)
    for suffix, builder in _BY_DATASET.items():
        if name.endswith(suffix):
            return builder(study, name.removesuffix(suffix))
    suffixes = [*_BY_DATASET, "_published"]
    known = ", ".join(
        ["em_by_dataset", "ablation_grid", "training_summary", *(f"DATASET{suffix}" for suffix in suffixes)]
    )
    raise DataError(f"there is no table '{name}'; known tables: {known}.")


def by_structure(study: Study, dataset: str) -> Table:
    """The main table: every arm (the warm-started policy among them), seed and structure."""
    frame = study.summary(dataset)[BY_STRUCTURE_COLUMNS]
    notes = [*_notes(study, dataset), _failures(study, dataset), *_detectable(study, dataset)]
    if study.unlimited is not None:
        frame = frame.merge(unlimited_em(study.unlimited, dataset), on=["arm", "seed", "structure"], how="left")
        notes.append("em unlimited: the same questions answered without the study's limits (evaluation.budgets).")
    return Table(f"{dataset}_by_structure", f"{dataset}: arms by question structure", frame, notes)


def comparison(study: Study, dataset: str) -> Table:
    """Every arm against the baseline arm on the same questions, with tests and what they could have found."""
    notes = [*_notes(study, dataset), _comparison_note(study), _detectable_note(study)]
    title = f"{dataset}: arms against {study.settings.baseline}"
    return Table(f"{dataset}_comparison", title, study.comparison(dataset), notes)


def details(study: Study, dataset: str) -> Table:
    """All figures and intervals behind the main table, and the paired differences to the baseline arm."""
    summary = study.summary(dataset)
    comparison = study.comparison(dataset)
    if len(comparison):
        summary = summary.merge(comparison, on=["arm", "seed", "structure"], how="left")
    notes = [*_notes(study, dataset), _comparison_note(study), *_detectable(study, dataset)]
    title = f"{dataset}: all figures by arm and structure"
    return Table(f"{dataset}_details", title, summary, notes)


def over_seeds(study: Study, dataset: str) -> Table:
    """Mean, interval and standard deviation over the seeds."""
    seeds = metrics.over_seeds(study.summary(dataset), confidence=study.settings.evaluation.confidence)
    notes = [
        *_notes(study, dataset),
        "Here an interval is Student's t over the seeds: it says what training again with other seeds would give. sd:"
        " standard deviation over seeds (n - 1). Both are missing where there is one seed.",
    ]
    title = f"{dataset}: mean over seeds"
    table = metrics.in_order(seeds, study.settings.arms)
    return Table(f"{dataset}_over_seeds", title, table, notes)


def ablation_grid(study: Study, published: Path = PUBLISHED_DIR) -> Table:
    """Weights of every trained arm with EM, DR and turns, the difference to the baseline, and the published row."""
    numbers = read_published(published / PARALLELSEARCH)
    dataset = only_dataset(study)
    runs = {(run.arm, run.seed): run for run in study.runs if run.has_reward}
    if not runs:
        raise DataError("no training run was given, so the weights of the arms are unknown; name train/*/seed*.")
    table = study.summary(dataset).merge(study.comparison(dataset), on=["arm", "seed", "structure"], how="left")
    rows: list[dict[str, Any]] = []
    caveats: set[str] = set()
    for figures in table.to_dict("records"):
        run = runs.get((figures["arm"], figures["seed"]))
        if run is None or figures["structure"] not in (Structure.PARALLEL, Structure.SEQUENTIAL):
            continue
        row = {"arm": run.arm, "seed": run.seed, **_weights(run)}
        row |= {name: figures[name] for name in _ABLATION_COLUMNS}
        for prefix, subset in PUBLISHED_SUBSETS.items():
            match = None
            if figures["structure"] == Structure.PARALLEL and _is_a_published_cell(run):
                match = numbers.ablation_row(subset, row["lambda_d"], row["lambda_s"])
                caveats.update(match.caveats if match else ())
            row |= {
                f"{prefix}_{figure}_published": getattr(match, figure) if match else math.nan
                for figure in ABLATION_FIGURES
            }
        rows.append(row)
    notes = [
        *_notes(study, dataset),
        _comparison_note(study),
        f"published: Table 4 of {numbers.source.title} (arXiv {numbers.source.arxiv}), Qwen2.5-7B-Instruct on another"
        " data set, where both weights are equal to ours; not comparable in height.",
        *(text for key, text in numbers.caveats.items() if key in caveats),
    ]
    headers = {
        f"{prefix}_{figure}_published": f"{figure.replace('_', ' ')}, {subset} (published)"
        for prefix, subset in PUBLISHED_SUBSETS.items()
        for figure in ABLATION_FIGURES
    }
    places = {name: 2 if "turns" in name else 3 for name in headers}
    return Table("ablation_grid", "Weights of the reward", pd.DataFrame(rows), notes, places, headers)


def em_by_dataset(study: Study) -> Table:
    """EM of every arm on every data set, all structures together, and the average over data sets (Table 2)."""
    episodes = study.episodes[~study.episodes["failed"]]
    frame = episodes.groupby(["arm", "seed", "dataset"])["em"].mean().unstack("dataset")
    frame["average"] = frame.mean(axis=1, skipna=False)
    sizes = ", ".join(
        f"{dataset} {group['qid'].nunique()}" for dataset, group in episodes.groupby("dataset", sort=True)
    )
    notes = [
        f"Questions: {sizes}. average: mean over the data sets, each counted once whatever its size.",
        "Intervals, and how far published figures lie, are in the tables of each data set.",
        *(f"{dataset}: {note}" for dataset in study.datasets for note in study.provenance_notes(dataset)),
    ]
    places = dict.fromkeys(frame.columns, 3)
    ordered = metrics.in_order(frame.reset_index(), study.settings.arms)
    return Table("em_by_dataset", "EM by data set", ordered, notes, places)


def training_summary(study: Study) -> Table:
    """What every training run did: steps, time, and the sampled figures of its first and last steps."""
    if not study.runs:
        raise DataError("no training run was given; name the folders train/*/seed*.")
    curves = {
        "reward": ("reward_mean",),
        "em": ("em",),
        "decomposition_ratio": ("decomposition_ratio",),
        "parallel_decomposition_ratio": ("decomposition_ratio/parallel",),
        "sequential_decomposition_ratio": ("decomposition_ratio/sequential",),
        "turns": ("turns",),
        "well_formed": ("well_formed",),
        "entropy": ("actor/entropy", "actor/entropy_loss"),
        "clip_ratio": ("response_length/clip_ratio",),
        "loss": ("loss",),
    }
    rows = []
    for run in study.runs:
        row: dict[str, Any] = {"arm": run.arm, "seed": run.seed, "complete": "yes" if run.complete else "no"}
        row["steps"] = int(run.metrics[-1]["step"]) if run.metrics else 0
        row["seconds"] = sum(step.get("seconds", math.nan) for step in run.metrics)
        for name, keys in curves.items():
            values = [step[key] for step in run.metrics for key in keys if step.get(key) is not None]
            if values or name in ("reward", "decomposition_ratio", "well_formed"):
                row[f"{name}_first"], row[f"{name}_last"] = _mean(values[:WINDOW]), _mean(values[-WINDOW:])
        rows.append(row)
    notes = [
        f"first, last: mean of the first and last {WINDOW} steps, sampled while training (not the greedy evaluation).",
        "Rewards of arms with different weights are not comparable. seconds: sum over the steps.",
        "clip ratio: share of episodes cut at the token limit; a rise means that entropy is fed by truncation.",
        "loss: of arms that learn from demonstrations, which have no reward and no sampled figures.",
    ]
    return Table("training_summary", "Training runs", pd.DataFrame(rows), notes, {"seconds": 1})


def only_dataset(study: Study) -> str:
    """The data set of the study; of several the one with parallel and sequential questions that comes first."""
    wanted = {Structure.PARALLEL.value, Structure.SEQUENTIAL.value}
    for dataset in study.datasets:
        if wanted <= set(study.episodes.loc[study.episodes["dataset"] == dataset, "structure"]):
            return dataset
    return study.datasets[0]


_BY_DATASET: dict[str, Callable[[Study, str], Table]] = {
    "_by_structure": by_structure,
    "_by_parts": by_parts,
    "_by_budget": by_budget,
    "_comparison": comparison,
    "_details": details,
    "_over_seeds": over_seeds,
}


def _weights(run: TrainingRun) -> dict[str, Any]:
    return {
        "semantics": str(run.config["reward"].get("semantics", "")),
        "lambda_d": run.weight("lambda_d"),
        "lambda_s": run.weight("lambda_s"),
    }


def _is_a_published_cell(run: TrainingRun) -> bool:
    """True for the reward of Table 4, trained as there: with PPO."""
    algorithm = run.config.get("training", {}).get("algorithm", "ppo")
    return run.config["reward"].get("semantics") in ("paper", "released") and algorithm == "ppo"


def _notes(study: Study, dataset: str) -> list[str]:
    level = f"Intervals: {study.settings.evaluation.confidence:.0%}, Wilson for shares, bootstrap for means."
    return [_DEFINITIONS, level, *study.provenance_notes(dataset)]


def _comparison_note(study: Study) -> str:
    baseline = study.settings.baseline
    return (
        f"difference: to {baseline} over the same questions (paired bootstrap); p: mid-p McNemar test for EM, sign-flip"
        " permutation test for the others; p holm: adjusted for all rows of the table (Holm)."
    )


def _detectable_note(study: Study) -> str:
    level = 1 - study.settings.evaluation.confidence
    return (
        f"detectable: the difference that the paired test finds with a probability of {POWER:.0%} at the level"
        f" {level:.2g}, given how much the two arms' outcomes scatter here; smaller true differences go unseen."
    )


def _detectable(study: Study, dataset: str) -> list[str]:
    """The largest detectable difference in EM of each structure, as a note below the main table."""
    table = study.comparison(dataset)
    if table.empty:
        return []
    largest = table.groupby("structure", sort=False)["em_detectable"].max()
    values = ", ".join(f"{structure} {value:.3f}" for structure, value in largest.dropna().items())
    if not values:
        return [f"No answer is right with one arm and wrong with {study.settings.baseline}: nothing can be compared."]
    return [f"EM differences to {study.settings.baseline} that would be found with {POWER:.0%} probability: {values}."]


def _failures(study: Study, dataset: str) -> str:
    failed = study.of_dataset(dataset).query("failed").groupby("arm").size()
    if failed.empty:
        return "Infrastructure failures: none."
    return "Infrastructure failures: " + ", ".join(f"{arm} {count}" for arm, count in failed.items()) + "."


def _mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values) if values else math.nan
