"""What tables, figures and the report are made from: episodes files, training runs and the settings they read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pandas as pd
from pydantic import Field

from parallelsearch.config import TREATMENT, WARM_START, EvaluationConfig, Section
from parallelsearch.config_files import from_json
from parallelsearch.errors import DataError
from parallelsearch.evaluation import budget_sweep, budgets, comparisons, metrics
from parallelsearch.evaluation.episodes import Provenance, read_provenance
from parallelsearch.plan.paths import PUBLISHED, UNLIMITED
from parallelsearch.runs.training_runs import TrainingRun, read_run


class ReportSettings(Section):
    """The slice of the configuration that tables, figures and the report read."""

    baseline: str = Field("search-r1", description="Arm the others are compared with.")
    treatment: str | None = Field(None, description="Arm whose gain is told first.")
    arms: list[str] = Field(default_factory=list, description="Arms in the order of tables and figures.")
    descriptions: dict[str, str] = Field(default_factory=dict, description="What each arm is.")
    evaluation: EvaluationConfig = EvaluationConfig.model_validate({})


@dataclass(frozen=True)
class Study:
    """The results of one study, read when they are asked for."""

    episode_files: tuple[Path, ...]
    run_folders: tuple[Path, ...]
    settings: ReportSettings
    judgement_files: tuple[Path, ...] = ()
    published_files: tuple[Path, ...] = ()  # episodes of the published protocol

    unlimited_files: tuple[Path, ...] = ()  # episodes without the study's limits

    @cached_property
    def unlimited(self) -> pd.DataFrame | None:
        """Figures of every episode without the study's limits (budgets.load); None where they were not asked for."""
        return budgets.load(self.unlimited_files) if self.unlimited_files else None

    def sweep(self, dataset: str) -> pd.DataFrame:
        """budget_sweep.summarise of one data set, in the order of tables; computed once for each data set."""
        if dataset not in self._sweeps:
            evaluation, episodes = self.settings.evaluation, self.unlimited
            if evaluation.budgets is None or episodes is None or dataset not in set(episodes["dataset"]):
                raise DataError(
                    f"{dataset} was not answered without the study's limits; set evaluation.budgets and name the"
                    f" eval/*/seed*/{dataset}.*{UNLIMITED}/episodes.parquet."
                )
            table = budget_sweep.summarise(
                episodes[episodes["dataset"] == dataset],
                evaluation.budgets,
                self.settings.baseline,
                evaluation.confidence,
                evaluation.bootstrap_samples,
            )
            self._sweeps[dataset] = metrics.in_order(table, self.settings.arms)
        return self._sweeps[dataset].copy()

    @cached_property
    def _sweeps(self) -> dict[str, pd.DataFrame]:
        return {}

    @property
    def treatment(self) -> str | None:
        """The arm whose gain is told first; None where no arm is compared with the baseline."""
        named = [self.settings.treatment, TREATMENT, *(run.arm for run in self.runs)]
        others = [arm for arm in named if arm in self.arms and arm not in (self.settings.baseline, WARM_START)]
        return others[0] if others and self.settings.baseline in self.arms else None

    @cached_property
    def as_published(self) -> Study | None:
        """The same study as the published protocol answers it; None where it was not asked for."""
        return (
            replace(self, episode_files=self.published_files, judgement_files=(), unlimited_files=())
            if self.published_files
            else None
        )

    @cached_property
    def episodes(self) -> pd.DataFrame:
        """Figures of every episode (evaluation.metrics.load), without transcripts."""
        if not self.episode_files:
            raise DataError("no episodes file was given; name the eval/*/seed*/*/episodes.parquet of the study.")
        return metrics.load(self.episode_files, self.judgement_files)

    @cached_property
    def runs(self) -> list[TrainingRun]:
        """The training runs in the order of arms and seeds."""
        runs = [read_run(folder) for folder in self.run_folders]
        order = metrics.arm_order({run.arm for run in runs}, self.settings.arms)
        return sorted(runs, key=lambda run: (order.index(run.arm), run.seed))

    @cached_property
    def provenance(self) -> dict[Path, Provenance]:
        return {path: read_provenance(path) for path in self.episode_files}

    @cached_property
    def arms(self) -> list[str]:
        """The arms with episodes, in the order of tables and figures."""
        return metrics.arm_order(self.episodes["arm"], self.settings.arms)

    @property
    def all_arms(self) -> list[str]:
        """Every arm that can appear, so that an arm looks the same in every figure: the study's, then others."""
        present = {run.arm for run in self.runs} | (set(self.arms) if self.episode_files else set())
        return metrics.arm_order({WARM_START, *self.settings.arms, *present}, self.settings.arms)

    @property
    def datasets(self) -> list[str]:
        return sorted(self.episodes["dataset"].unique())

    def of_dataset(self, dataset: str) -> pd.DataFrame:
        """The episodes of one data set; one split of it only, because figures of two splits must not be mixed."""
        chosen = self.episodes[self.episodes["dataset"] == dataset]
        if chosen.empty:
            raise DataError(f"there is no episode of {dataset}; the given files hold {', '.join(self.datasets)}.")
        splits = sorted(chosen["split"].unique())
        if len(splits) > 1:
            raise DataError(f"the episodes of {dataset} are of the splits {', '.join(splits)}; give the files of one.")
        return chosen

    def summary(self, dataset: str) -> pd.DataFrame:
        """metrics.summarise by arm, seed and structure, in the order of tables; computed once for each data set."""
        if dataset not in self._summaries:
            evaluation = self.settings.evaluation
            table = metrics.summarise(
                self.of_dataset(dataset), confidence=evaluation.confidence, samples=evaluation.bootstrap_samples
            )
            self._summaries[dataset] = metrics.in_order(table, self.settings.arms)
        return self._summaries[dataset].copy()

    @cached_property
    def _summaries(self) -> dict[str, pd.DataFrame]:
        return {}

    def comparison(self, dataset: str) -> pd.DataFrame:
        """comparisons.compare with the baseline arm, in the order of tables."""
        evaluation = self.settings.evaluation
        table = comparisons.compare(
            self.of_dataset(dataset), self.settings.baseline, evaluation.confidence, evaluation.bootstrap_samples
        )
        return metrics.in_order(table, self.settings.arms)

    def provenance_notes(self, dataset: str) -> list[str]:
        """Sentences on corpus, index, top-k and decoding of a data set's episodes; one for each that differs."""
        notes: dict[str, set[str]] = {}
        for path, origin in self.provenance.items():
            rows = pd.read_parquet(path, columns=["arm", "dataset"]).drop_duplicates()
            arms = set(rows.loc[rows["dataset"] == dataset, "arm"])
            if arms:
                notes.setdefault(describe(origin), set()).update(arms)
        if len(notes) == 1:
            return list(notes)
        return [f"{', '.join(metrics.arm_order(arms, self.settings.arms))}: {note}" for note, arms in notes.items()]


def describe(origin: Provenance) -> str:
    """One line on what episodes were made from; checksums are cut to 12 digits."""
    decoding = ", ".join(f"{key} {value}" for key, value in origin.decoding.items()) or "not recorded"
    return (
        f"Corpus {_named(origin.corpus, origin.corpus_sha256)}; index {_named(origin.index, origin.index_sha256)};"
        f" top-k {origin.top_k}; questions {_named('', origin.questions_sha256)}; decoding: {decoding}."
    )


def read_study(inputs: Iterable[Path], settings: str) -> Study:
    """A study from episodes files, judgements.parquet, training folders (or their done.json), and settings as JSON."""
    episode_files, run_folders, judgement_files, published_files, unlimited_files = [], [], [], [], []
    for path in map(Path, inputs):
        if path.name == "judgements.parquet":
            judgement_files.append(path)
        elif path.parent.name.endswith(PUBLISHED):
            published_files.append(path)
        elif path.parent.name.endswith(UNLIMITED):
            unlimited_files.append(path)
        elif path.suffix == ".parquet":
            episode_files.append(path)
        elif path.name == "done.json":
            run_folders.append(path.parent)
        elif path.is_dir():
            run_folders.append(path)
        else:
            raise DataError(f"{path} is neither an episodes file (*.parquet) nor a training folder; leave it out.")
    chosen = from_json(ReportSettings, settings, "--settings")
    return Study(
        tuple(episode_files),
        tuple(run_folders),
        chosen,
        tuple(judgement_files),
        tuple(published_files),
        tuple(unlimited_files),
    )


def _named(name: str, checksum: str) -> str:
    return " ".join(part for part in (name, f"sha256 {checksum[:12]}" if checksum else "") if part) or "none"
