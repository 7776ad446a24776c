"""Every episode of a study as the report's page holds it: compact, compressed, read by page.js."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from parallelsearch.evaluation.episodes import read_rows
from parallelsearch.report.study import Study
from parallelsearch.visible import visible

MOST_EPISODES = 10_000
QuestionKey = tuple[str, str, str]  # data set, split, question id
Key = tuple[str, int, str, str, str]  # arm, seed, then the question's


@dataclass(frozen=True)
class EpisodeData:
    """`encoded` is gzip in base64 of {questions, episodes}; `places` says where an episode stands in the list."""

    encoded: str
    places: dict[Key, int]
    left_out: int


def episode_data(study: Study, keep: Iterable[QuestionKey] = (), most: int = MOST_EPISODES) -> EpisodeData:
    """The episodes by question, arm and seed; of a study with more than `most` those of some questions and `keep`."""
    questions: list[dict[str, Any]] = []
    numbers: dict[QuestionKey, int] = {}
    wanted = _questions_shown(study, most) | set(keep)
    rows, left_out = [], 0
    for row in _rows(study):
        question = (row["dataset"], row["split"], row["qid"])
        if question not in wanted:
            left_out += 1
            continue
        if question not in numbers:
            numbers[question] = len(questions)
            questions.append(_question(row))
        rows.append((row, _episode(row, numbers[question])))
    rows.sort(key=lambda pair: (pair[1]["question"], study.arms.index(pair[0]["arm"]), pair[0]["seed"]))
    keys = [(row["arm"], row["seed"], row["dataset"], row["split"], row["qid"]) for row, _ in rows]
    content = _visible({"questions": questions, "episodes": [episode for _, episode in rows]})
    packed = gzip.compress(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(), mtime=0)
    return EpisodeData(base64.b64encode(packed).decode(), {key: place for place, key in enumerate(keys)}, left_out)


def _visible(value: Any) -> Any:
    """`value` with every text in it as the page shows it."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {key: _visible(inner) for key, inner in value.items()}
    return [_visible(inner) for inner in value] if isinstance(value, list) else value


def _rows(study: Study) -> Iterator[dict[str, Any]]:
    for path in study.episode_files:
        yield from read_rows(path)


def _questions_shown(study: Study, most: int) -> set[QuestionKey]:
    """As many questions as `most` episodes allow, taken in turn from every data set and structure."""
    episodes = study.episodes
    columns = ["dataset", "split", "qid"]
    each = len(episodes) / max(1, len(episodes.drop_duplicates(columns)))  # episodes of a question
    questions = episodes.drop_duplicates(columns)
    place = questions.groupby(["dataset", "structure"], sort=False).cumcount()
    chosen = questions.assign(place=place).sort_values("place", kind="stable")[columns]
    return set(chosen.head(int(most / each)).itertuples(index=False, name=None))


def _question(row: dict[str, Any]) -> dict[str, Any]:
    names = ("dataset", "split", "qid", "type", "structure", "text")
    return {**{name: row[name] for name in names}, "golden": row["golden_answers"]}


def _episode(row: dict[str, Any], question: int) -> dict[str, Any]:
    verdict = "failed" if row["em"] is None else "right" if row["em"] else "wrong"
    return {
        "question": question,
        "arm": row["arm"],
        "seed": row["seed"],
        "verdict": verdict,
        "decomposed": "yes" if row["decomposed"] else "no",
        "answer": row["answer"],
        "stop": row["stop_reason"],
        "error": row["error"],
        "calls": row["llm_calls"],
        "searches": row["searches"],
        "seconds": round(row["seconds"], 3),
        "reward": None if row["reward_total"] is None else round(row["reward_total"], 3),
        "turns": [_turn(turn) for turn in row["turns"]],
    }


def _turn(turn: dict[str, Any]) -> dict[str, Any]:
    return {
        "action": turn["action"],
        "text": turn["text"],
        "observation": turn["observation"],
        "answer": turn["answer"],
        "tokens": turn["model_tokens"],
        "generate": round(turn["generate_seconds"], 3),
        "search": round(turn["search_seconds"], 3),
        "queries": [
            {"text": query["text"], "titles": [hit["title"] for hit in (query["hits"] or [])[: query["shown"]]]}
            for query in turn["sub_queries"] or []
        ],
    }
