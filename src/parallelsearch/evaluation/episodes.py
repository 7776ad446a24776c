"""The episodes file: one row an episode, the whole transcript inside, and where it came from in the file's metadata.

Columns: the fields of Question; `turns` (list of struct) as Turn, its sub-queries with their hits; the outcome of the
episode; and figures derived from it, so that a reader of the file alone needs no code of ours. `em`, `f1`,
`substring_em` and `gold_recall` are null for an infrastructure failure: such an episode says nothing about the policy.
`reward_*` are the terms of the arm's reward, null where its semantics has no such term. A file that was written before
an extra term was there lacks its column, and is read as if it were null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from parallelsearch.answers import exact_match, f1_score, substring_match
from parallelsearch.errors import DataError
from parallelsearch.files import replacing
from parallelsearch.records import Action, Episode, Hit, Passage, Question, StopReason, Structure, SubQuery, Turn
from parallelsearch.rewards.breakdown import EXTRA, TERMS, RewardBreakdown

ROWS_PER_GROUP = 512
PROVENANCE_KEY = b"parallelsearch.provenance"

_HIT = pa.struct([("id", pa.int64()), ("title", pa.string()), ("text", pa.string()), ("score", pa.float64())])
_SUB_QUERY = pa.struct([("text", pa.string()), ("shown", pa.int32()), ("hits", pa.list_(_HIT))])
_TURN = pa.struct(
    [
        ("text", pa.string()),
        ("action", pa.string()),
        ("sub_queries", pa.list_(_SUB_QUERY)),
        ("answer", pa.string()),
        ("observation", pa.string()),
        ("model_tokens", pa.int32()),
        ("observation_tokens", pa.int32()),
        ("generate_seconds", pa.float64()),
        ("search_seconds", pa.float64()),
    ]
)
_QUESTION = [
    ("qid", pa.string()),
    ("dataset", pa.string()),
    ("split", pa.string()),
    ("text", pa.string()),
    ("golden_answers", pa.list_(pa.string())),
    ("type", pa.string()),
    ("structure", pa.string()),
    ("hops", pa.int32()),
    ("supporting_titles", pa.list_(pa.string())),
    ("supporting_ids", pa.list_(pa.int64())),
]
_OUTCOME = [
    ("turns", pa.list_(_TURN)),
    ("answer", pa.string()),
    ("stop_reason", pa.string()),
    ("well_formed", pa.bool_()),
    ("error", pa.string()),
    ("prompt", pa.string()),
    ("prompt_tokens", pa.int32()),
    ("seconds", pa.float64()),
]
_DERIVED = [
    ("em", pa.float64()),
    ("f1", pa.float64()),
    ("substring_em", pa.float64()),
    ("decomposed", pa.bool_()),
    ("decomposed_first", pa.bool_()),
    ("llm_calls", pa.int32()),
    ("searches", pa.int32()),
    ("sub_queries", pa.int32()),
    ("model_tokens", pa.int32()),
    ("observation_tokens", pa.int32()),
    ("generate_seconds", pa.float64()),
    ("search_seconds", pa.float64()),
    ("gold_recall", pa.float64()),
]
_REWARD = [
    *((f"reward_{name}", pa.float64()) for name in (*TERMS, "total")),
    ("reward_by_turn", pa.list_(pa.float64())),
]
SCHEMA = pa.schema(
    [
        pa.field("arm", pa.string(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        *_QUESTION,
        *_OUTCOME,
        *_DERIVED,
        *_REWARD,
    ]
)

Scored = tuple[Episode, RewardBreakdown | None]


@dataclass(frozen=True, slots=True)
class Provenance:
    """What the episodes were made from. Checksums are hex SHA-256; '' where there is no such input."""

    policy_sha256: str
    index_sha256: str
    corpus_sha256: str
    questions_sha256: str
    top_k: int
    decoding: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    corpus: str = ""
    index: str = ""
    versions: dict[str, str] = field(default_factory=dict)


def write_episodes(path: Path, episodes: Iterable[Scored], *, arm: str, seed: int, provenance: Provenance) -> None:
    """Writes (episode, reward or None) pairs atomically, in their order, `ROWS_PER_GROUP` rows at a time."""
    metadata = {PROVENANCE_KEY: json.dumps(asdict(provenance), ensure_ascii=False, default=str).encode()}
    schema = SCHEMA.with_metadata(metadata)
    remaining = iter(episodes)
    with replacing(path) as partial, pq.ParquetWriter(partial, schema, compression="zstd") as writer:
        while batch := [row_of(episode, reward, arm, seed) for episode, reward in islice(remaining, ROWS_PER_GROUP)]:
            writer.write_table(pa.Table.from_pylist(batch, schema=schema))


def read_episodes(path: Path) -> list[Scored]:
    """The pairs of an episodes file in their order, equal to what was written."""
    return [(episode_of(row), reward_of(row)) for row in read_rows(path)]


def read_rows(path: Path, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """The rows of an episodes file as mappings; without `turns` among `columns` no transcript is read."""
    with _open(path) as file:
        for batch in file.iter_batches(batch_size=ROWS_PER_GROUP, columns=list(columns) if columns else None):
            yield from batch.to_pylist()


def read_provenance(path: Path) -> Provenance:
    """What an episodes file was made from; reads the footer only."""
    with _open(path) as file:
        values = json.loads(file.schema_arrow.metadata[PROVENANCE_KEY])
    known = {entry.name for entry in fields(Provenance)}
    return Provenance(**{key: value for key, value in values.items() if key in known})


def row_of(episode: Episode, reward: RewardBreakdown | None, arm: str, seed: int) -> dict[str, Any]:
    """One row of the file."""
    question, turns = episode.question, episode.turns
    counts = not episode.stop_reason.is_infrastructure_failure
    return {
        "arm": arm,
        "seed": seed,
        "qid": question.qid,
        "dataset": question.dataset,
        "split": question.split,
        "text": question.text,
        "golden_answers": list(question.golden_answers),
        "type": question.type,
        "structure": question.structure.value,
        "hops": question.hops,
        "supporting_titles": list(question.supporting_titles),
        "supporting_ids": list(question.supporting_ids),
        "turns": [_turn_row(turn) for turn in turns],
        "answer": episode.answer,
        "stop_reason": episode.stop_reason.value,
        "well_formed": episode.well_formed,
        "error": episode.error,
        "prompt": episode.prompt,
        "prompt_tokens": episode.prompt_tokens,
        "seconds": episode.seconds,
        "em": float(exact_match(episode.answer, question.golden_answers)) if counts else None,
        "f1": float(f1_score(episode.answer, question.golden_answers)) if counts else None,
        "substring_em": substring_match(episode.answer, question.golden_answers) if counts else None,
        "decomposed": episode.decomposed,
        "decomposed_first": episode.decomposed_first,
        "llm_calls": episode.llm_calls,
        "searches": episode.searches,
        "sub_queries": sum(len(turn.sub_queries) for turn in turns),
        "model_tokens": sum(turn.model_tokens for turn in turns),
        "observation_tokens": sum(turn.observation_tokens for turn in turns),
        "generate_seconds": sum(turn.generate_seconds for turn in turns),
        "search_seconds": sum(turn.search_seconds for turn in turns),
        "gold_recall": gold_recall(episode) if counts else None,
        **_reward_row(reward),
    }


def gold_recall(episode: Episode) -> float | None:
    """Share of the question's supporting passages that reached the model (0 to 1); None where they are not known.

    By passage id where the question has ids of this corpus, else by title: any passage of a supporting page counts.
    """
    question = episode.question
    passages = [
        hit.passage for turn in episode.turns for query in turn.sub_queries for hit in query.hits[: query.shown]
    ]
    wanted: set[int | str] = set(question.supporting_ids or question.supporting_titles)
    shown = {passage.id if question.supporting_ids else passage.title for passage in passages}
    return len(wanted & shown) / len(wanted) if wanted else None


def episode_of(row: dict[str, Any]) -> Episode:
    """The episode of a row with all columns."""
    question = Question(
        qid=row["qid"],
        dataset=row["dataset"],
        split=row["split"],
        text=row["text"],
        golden_answers=tuple(row["golden_answers"]),
        type=row["type"],
        structure=Structure(row["structure"]),
        hops=row["hops"],
        supporting_titles=tuple(row["supporting_titles"]),
        supporting_ids=tuple(row["supporting_ids"]),
    )
    return Episode(
        question=question,
        turns=tuple(_turn_of(turn) for turn in row["turns"]),
        answer=row["answer"],
        stop_reason=StopReason(row["stop_reason"]),
        well_formed=row["well_formed"],
        prompt=row["prompt"],
        prompt_tokens=row["prompt_tokens"],
        seconds=row["seconds"],
        error=row["error"],
    )


def reward_of(row: dict[str, Any]) -> RewardBreakdown | None:
    """The reward of a row; None where the episode was not scored."""
    if row["reward_total"] is None:
        return None
    terms = {name: value for name in TERMS if (value := row.get(f"reward_{name}")) is not None}
    return RewardBreakdown(terms, row["reward_total"], tuple(row["reward_by_turn"]))


def _reward_row(reward: RewardBreakdown | None) -> dict[str, Any]:
    """The reward's columns: a term that its semantics does not have is null, all are where nothing was scored."""
    values = reward.as_dict() if reward else {}
    by_turn = list(reward.by_turn) if reward else None
    return {f"reward_{name}": values.get(name) for name in (*TERMS, "total")} | {"reward_by_turn": by_turn}


def _turn_row(turn: Turn) -> dict[str, Any]:
    row: dict[str, Any] = {entry.name: getattr(turn, entry.name) for entry in fields(Turn)}
    row["action"] = turn.action.value
    row["sub_queries"] = [
        {
            "text": query.text,
            "shown": query.shown,
            "hits": [
                {"id": hit.passage.id, "title": hit.passage.title, "text": hit.passage.text, "score": hit.score}
                for hit in query.hits
            ],
        }
        for query in turn.sub_queries
    ]
    return row


def _turn_of(row: dict[str, Any]) -> Turn:
    queries = tuple(
        SubQuery(
            text=query["text"],
            shown=query["shown"],
            hits=tuple(Hit(Passage(hit["id"], hit["title"], hit["text"]), hit["score"]) for hit in query["hits"]),
        )
        for query in row["sub_queries"]
    )
    return Turn(**{**row, "action": Action(row["action"]), "sub_queries": queries})


def _open(path: Path) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(path)
    except FileNotFoundError:
        raise DataError(f"{path} is missing; rerun the evaluation that writes it.") from None
    except pa.ArrowInvalid as error:
        raise DataError(
            f"{path} is not a whole parquet file ({error}); delete it and rerun the evaluation that writes it."
        ) from None
    later = {f"reward_{name}" for name in EXTRA}
    absent = [name for name in SCHEMA.names if name not in file.schema_arrow.names and name not in later]
    if absent or PROVENANCE_KEY not in (file.schema_arrow.metadata or {}):
        file.close()
        found = f"lacks the columns {', '.join(absent)}" if absent else "has no provenance in its metadata"
        raise DataError(f"{path} {found}, so it is no episodes file; rerun the evaluation that writes it.")
    return file
