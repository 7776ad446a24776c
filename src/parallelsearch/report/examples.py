"""The question that the report shows answered both ways."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from parallelsearch.config import WARM_START
from parallelsearch.evaluation.episodes import SCHEMA, episode_of
from parallelsearch.records import Episode, Structure
from parallelsearch.report.episode_data import Key
from parallelsearch.report.study import Study


@dataclass(frozen=True)
class Shown:
    """An episode as the report shows it."""

    arm: str
    seed: int
    episode: Episode
    em: float | None

    @property
    def key(self) -> Key:
        question = self.episode.question
        return self.arm, self.seed, question.dataset, question.split, question.qid


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
    found = {shown.key: shown for shown in _read(study, {best["qid"]})}
    keys = [(best[f"arm_{side}"], *best[["seed", "dataset", "split", "qid"]]) for side in ("apart", "at_once")]
    return Contrast(found[keys[0]], found[keys[1]])


def _read(study: Study, qids: set[str]) -> list[Shown]:
    """The episodes of some questions, whole; other rows are skipped by the reader."""
    return [entry for path in study.episode_files for entry in _read_file(path, sorted(qids))]


def _read_file(path: Path, qids: list[str]) -> Iterable[Shown]:
    rows: list[dict[str, Any]] = pq.read_table(path, schema=SCHEMA, filters=[("qid", "in", qids)]).to_pylist()
    for row in rows:
        yield Shown(row["arm"], row["seed"], episode_of(row), row["em"])
