"""Arms whose answers are written out: so many questions of so many parts, answered in so many calls, right or wrong."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from parallelsearch.evaluation.episodes import Provenance, write_episodes
from parallelsearch.records import Action, Episode, Question, StopReason, Structure, SubQuery, Turn

SETTINGS = {
    "baseline": "search-r1",
    "arms": ["search-r1", "parallelsearch"],
    "evaluation": {
        "bootstrap_samples": 300,
        "budgets": {"llm_calls": [2, 3, 4], "response_tokens": [60, 90]},
    },
}
Made = dict[tuple[int, int], tuple[int, bool]]  # (parts, questions) -> (LLM calls, right)


def write_arm(root: Path, folder: str, arm: str, seed: int, made: Made) -> Path:
    """Every search turn has 10 tokens and shows 20, every answer has 10; two calls are a search in parallel."""
    drafts = [(parts, calls, right) for (parts, count), (calls, right) in made.items() for _ in range(count)]
    numbers: Counter[int] = Counter()  # of the questions with so many parts, so that all arms answer the same ones
    episodes = []
    for parts, calls, right in drafts:
        episodes.append(_episode(f"{parts}-{numbers[parts]}", parts, calls, right))
        numbers[parts] += 1
    path = root / "eval" / arm / f"seed{seed}" / folder / "episodes.parquet"
    origin = Provenance("1", "2", "3", "4", top_k=1)
    write_episodes(path, [(episode, None) for episode in episodes], arm=arm, seed=seed, provenance=origin)
    return path


def _episode(qid: str, parts: int, calls: int, right: bool) -> Episode:
    question = Question(qid, "geoworld", "test", "?", ("z",), "comparison", Structure.PARALLEL, hops=parts)
    asked = [SubQuery(f"part {number}") for number in range(parts)]
    queries = [tuple(asked)] if calls == 2 else [(asked[number % parts],) for number in range(calls - 1)]
    searches = [
        Turn("<search>", Action.SEARCH, found, observation="seen", model_tokens=10, observation_tokens=20)
        for found in queries
    ]
    answer = "z" if right else "w"
    turns = (*searches, Turn("<answer>", Action.ANSWER, answer=answer, model_tokens=10))
    return Episode(question, turns, answer, StopReason.ANSWERED, well_formed=True, seconds=1.0)
