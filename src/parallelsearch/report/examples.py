"""Which episodes the report shows: one question answered both ways, and a sample that every arm has in common."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from parallelsearch.config import WARM_START
from parallelsearch.evaluation.episodes import SCHEMA, episode_of
from parallelsearch.evaluation.metrics import STRUCTURES
from parallelsearch.records import Episode, Structure
from parallelsearch.report.study import Study

QUESTIONS_PER_STRUCTURE = 8


@dataclass(frozen=True)
class Shown:
    """An episode as the report shows it."""

    arm: str
    seed: int
    episode: Episode
    em: float | None
    reward: float | None


@dataclass(frozen=True)
class Contrast:
    """The same question answered one look-up after the other, and with one parallel search."""

    sequential: Shown
    parallel: Shown

    @property
    def both_right(self) -> bool:
        return bool(self.sequential.em and self.parallel.em)


def contrast(study: Study) -> Contrast | None:
    """A parallel question that one arm answered one by one and another in one parallel search; None if there is none.

    Preferred, in this order: both answers are right; the sequential one is the baseline arm's; the arms come early in
    the study's order, the warm-started policy last; a small question id.
    """
    episodes = study.episodes[~study.episodes["failed"] & (study.episodes["structure"] == Structure.PARALLEL)]
    episodes = episodes[episodes["answered"] & episodes["well_formed"]]
    apart = episodes[~episodes["decomposed"] & (episodes["searches"] >= 2)]
    at_once = episodes[episodes["decomposed"] & (episodes["searches"] == 1)]
    question = ["dataset", "split", "qid", "seed"]
    pairs = apart.merge(at_once, on=question, suffixes=("_apart", "_at_once"))
    if pairs.empty:
        return None
    rank = {arm: place + len(study.arms) * (arm == WARM_START) for place, arm in enumerate(study.arms)}
    pairs = pairs.assign(
        wrong=2 - pairs["em_apart"] - pairs["em_at_once"],
        other=pairs["arm_apart"] != study.settings.baseline,
        first=pairs["arm_apart"].map(rank),
        second=pairs["arm_at_once"].map(rank),
    )
    best = pairs.sort_values(["wrong", "other", "first", "second", *question], kind="stable").iloc[0]
    keys = [(best[f"arm_{side}"], best["seed"], best["dataset"], best["qid"]) for side in ("apart", "at_once")]
    found = {(shown.arm, shown.seed, *_question(shown)): shown for shown in _read(study, {best["qid"]})}
    return Contrast(found[keys[0]], found[keys[1]])


def sample(study: Study, per_structure: int = QUESTIONS_PER_STRUCTURE) -> list[Shown]:
    """The first questions of each structure as every arm answered them with the first seed, ordered by question."""
    episodes = study.episodes[study.episodes["seed"] == study.episodes["seed"].min()]
    questions = episodes.drop_duplicates(["dataset", "qid"])
    chosen: list[str] = []
    for structure in STRUCTURES:
        chosen += list(questions.loc[questions["structure"] == structure, "qid"])[:per_structure]
    shown = [entry for entry in _read(study, set(chosen)) if entry.seed == study.episodes["seed"].min()]
    return sorted(shown, key=lambda entry: (chosen.index(entry.episode.question.qid), study.arms.index(entry.arm)))


def _question(shown: Shown) -> tuple[str, str]:
    return shown.episode.question.dataset, shown.episode.question.qid


def _read(study: Study, qids: set[str]) -> list[Shown]:
    """The episodes of some questions, whole; other rows are skipped by the reader."""
    return [entry for path in study.episode_files for entry in _read_file(path, sorted(qids))]


def _read_file(path: Path, qids: list[str]) -> Iterable[Shown]:
    rows: list[dict[str, Any]] = pq.read_table(path, schema=SCHEMA, filters=[("qid", "in", qids)]).to_pylist()
    for row in rows:
        yield Shown(row["arm"], row["seed"], episode_of(row), row["em"], row["reward_total"])
