"""Episodes written out by hand, for figures that can be counted by hand."""

from __future__ import annotations

from pathlib import Path

from parallelsearch.evaluation.episodes import Provenance, write_episodes
from parallelsearch.records import Action, Episode, Question, StopReason, Structure, SubQuery, Turn

ORIGIN = Provenance("a", "b", "c", "d", top_k=2)
PARALLEL = Turn("<search>x ## y</search>", Action.SEARCH, (SubQuery("x"), SubQuery("y")), search_seconds=0.5)
REPEATED = Turn("<search>x ## X </search>", Action.SEARCH, (SubQuery("x"), SubQuery("X ")), search_seconds=0.5)
SINGLE = Turn("<search>x</search>", Action.SEARCH, (SubQuery("x"),), search_seconds=0.5)
ANSWER = Turn("<answer>z</answer>", Action.ANSWER, answer="z")


def episode(
    qid: str,
    turns: tuple[Turn, ...],
    answer: str | None,
    structure: Structure = Structure.PARALLEL,
    stop: StopReason = StopReason.ANSWERED,
    seconds: float = 1.0,
) -> Episode:
    question = Question(qid, "geoworld", "test", "?", ("z",), "comparison", structure)
    return Episode(question, turns, answer, stop, answer is not None, seconds=seconds)


def write(tmp_path: Path, arm: str, seed: int, episodes: list[Episode]) -> Path:
    path = tmp_path / arm / f"seed{seed}" / "episodes.parquet"
    write_episodes(path, [(entry, None) for entry in episodes], arm=arm, seed=seed, provenance=ORIGIN)
    return path
