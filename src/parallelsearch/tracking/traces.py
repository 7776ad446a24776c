"""Episodes as MLflow traces: episode > generation and search of every turn > sub-queries, with the times they took.

The client API is used throughout: the fluent one keeps its state per thread and has attached spans to the wrong run.
Sub-queries of one search are one batched call, so their spans share the search's start and end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from parallelsearch.evaluation.episodes import SCHEMA, episode_of, read_rows
from parallelsearch.evaluation.metrics import STRUCTURES
from parallelsearch.files import sha256
from parallelsearch.records import SubQuery, Turn
from parallelsearch.tracking.names import shortened
from parallelsearch.tracking.results import ArmResult
from parallelsearch.tracking.runs import TRACES, Written
from parallelsearch.tracking.store import Store

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Span, Trace

NANOSECONDS = 1_000_000_000
SPAN_NAME_LENGTH = 80
TRACES_IN_FLIGHT = 50  # MLflow's background queue drops spans beyond about two thousand


@dataclass(frozen=True)
class PendingTraces:
    """The traces of one run that were handed to MLflow, which writes them in the background."""

    run_id: str
    content: str
    traces: int
    spans: int
    failures: list[str]


def send_traces(store: Store, run: Written, result: ArmResult, limit: int) -> PendingTraces | None:
    """Hands up to `limit` episodes of an arm and seed to MLflow as traces of its run, in place of older ones.

    None where the run already has these traces.
    """
    import mlflow

    content = _content(result, limit)
    if run.traces == content:
        return None
    stale = trace_ids(store, run.run_id) if run.action != "created" else []
    if stale:
        store.client.delete_traces(store.experiment_id, trace_ids=stale)
    rows, failures = chosen_rows(result, limit), []
    for number, (row, start) in enumerate(_with_starts(rows, result), 1):
        try:
            write_trace(store, run.run_id, row, start)
        except Exception as error:  # a trace is an illustration: the collection goes on without it and says so
            failures.append(f"{result.key}, question {row['qid']}: {' '.join(str(error).split())}")
        if number % TRACES_IN_FLIGHT == 0:
            mlflow.flush_trace_async_logging()
    return PendingTraces(run.run_id, content, len(rows), sum(map(span_count, rows)), failures)


def confirm_traces(store: Store, pending: Sequence[PendingTraces]) -> list[str]:
    """Waits for the background writer and returns a sentence for every trace, or run of them, that is not whole."""
    import mlflow

    mlflow.flush_trace_async_logging()
    failures = []
    for sent in pending:
        failures += sent.failures
        stored = _traces(store, sent.run_id, spans=True)
        spans = sum(len(trace.data.spans) for trace in stored)
        if (len(stored), spans) == (sent.traces, sent.spans):
            store.client.set_tag(sent.run_id, TRACES, sent.content)
        elif not sent.failures:
            failures.append(
                f"run {sent.run_id}: stored were {len(stored)} of {sent.traces} traces, {spans} of {sent.spans} spans"
            )
    return failures


def span_count(row: dict[str, Any]) -> int:
    """Number of spans of an episode's trace: itself, every generation, every search, every sub-query."""
    turns = episode_of(row).turns
    searches = [turn.sub_queries for turn in turns if turn.sub_queries]
    return 1 + sum(turn.generated for turn in turns) + len(searches) + sum(map(len, searches))


def chosen_rows(result: ArmResult, limit: int) -> list[dict[str, Any]]:
    """The first episodes of each structure in turn, up to `limit`, as whole rows of the episodes files."""
    waiting: dict[str, list[tuple[Path, str]]] = {structure: [] for structure in STRUCTURES}
    for path in result.episodes:
        for row in read_rows(path, ("qid", "structure")):
            waiting[row["structure"]].append((path, row["qid"]))
    chosen: list[tuple[Path, str]] = []
    for place in range(max(map(len, waiting.values()))):
        chosen += [line[place] for line in waiting.values() if place < len(line)]
        if len(chosen) >= limit:
            break
    chosen = chosen[:limit]
    rows: dict[tuple[Path, str], dict[str, Any]] = {}
    for path in dict.fromkeys(path for path, _ in chosen):
        wanted = [qid for other, qid in chosen if other == path]
        for row in pq.read_table(path, schema=SCHEMA, filters=[("qid", "in", wanted)]).to_pylist():
            rows[path, row["qid"]] = row
    return [rows[key] for key in chosen]


def write_trace(store: Store, run_id: str, row: dict[str, Any], start: int) -> str:
    """One episode as a trace that begins at `start` (nanoseconds since 1970); returns the trace's id."""
    from mlflow.entities import SpanStatus, SpanStatusCode, SpanType

    episode = episode_of(row)
    root = store.client.start_trace(
        name="episode",
        span_type=SpanType.AGENT,
        inputs={"question": episode.question.text, "golden_answers": list(episode.question.golden_answers)},
        attributes=_attributes(row),
        tags=_tags(row),
        experiment_id=store.experiment_id,
        start_time_ns=start,
        run_id=run_id,
    )
    clock = start
    context = episode.prompt_tokens
    shown = episode.prompt
    for number, turn in enumerate(episode.turns, 1):
        clock = _write_turn(store.client, root, number, turn, clock, context, shown)
        context += turn.model_tokens + turn.observation_tokens
        shown = turn.observation
    failed = episode.stop_reason.is_infrastructure_failure
    status = SpanStatus(SpanStatusCode.ERROR, episode.error) if failed else SpanStatus(SpanStatusCode.OK)
    outputs = {"answer": episode.answer, "stop_reason": episode.stop_reason.value}
    store.client.end_trace(
        root.trace_id,
        outputs=outputs | ({"error": episode.error} if episode.error else {}),
        status=status,
        end_time_ns=max(clock, start + _duration(episode.seconds)),
    )
    return str(root.trace_id)


def _write_turn(client: MlflowClient, root: Span, number: int, turn: Turn, start: int, context: int, shown: str) -> int:
    """The spans of one turn; returns the end of the last one. A search without a generation has no generation span."""
    from mlflow.entities import SpanType

    generated = start
    if turn.generated:
        generated = _write_generation(client, root, number, turn, start, context, shown)
    if not turn.sub_queries:
        return generated
    found = generated + _duration(turn.search_seconds)
    search = client.start_span(
        f"search {number}",
        root.trace_id,
        root.span_id,
        span_type=SpanType.TOOL,
        inputs={"sub_queries": [query.text for query in turn.sub_queries]},
        attributes={"sub_queries": len(turn.sub_queries), "observation_tokens": turn.observation_tokens},
        start_time_ns=generated,
    )
    for query in turn.sub_queries:
        span = client.start_span(
            f"sub-query: {shortened(query.text, SPAN_NAME_LENGTH)}",
            root.trace_id,
            search.span_id,
            span_type=SpanType.RETRIEVER,
            inputs={"query": query.text},
            attributes={"hits": len(query.hits), "shown": query.shown},
            start_time_ns=generated,
        )
        client.end_span(root.trace_id, span.span_id, outputs=_documents(query), end_time_ns=found)
    client.end_span(root.trace_id, search.span_id, outputs={"observation": turn.observation}, end_time_ns=found)
    return found


def _write_generation(
    client: MlflowClient, root: Span, number: int, turn: Turn, start: int, context: int, shown: str
) -> int:
    from mlflow.entities import SpanType
    from mlflow.tracing.constant import SpanAttributeKey

    usage = {"input_tokens": context, "output_tokens": turn.model_tokens, "total_tokens": context + turn.model_tokens}
    end = start + _duration(turn.generate_seconds)
    span = client.start_span(
        f"generation {number}",
        root.trace_id,
        root.span_id,
        span_type=SpanType.LLM,
        inputs={"prompt" if number == 1 else "observation": shown},
        attributes={"action": turn.action.value, SpanAttributeKey.CHAT_USAGE: usage},
        start_time_ns=start,
    )
    outputs = {"text": turn.text, "action": turn.action.value, "answer": turn.answer}
    client.end_span(root.trace_id, span.span_id, outputs=outputs, end_time_ns=end)
    return end


def _documents(query: SubQuery) -> list[dict[str, Any]]:
    """Hits in the layout that MLflow shows as documents."""
    return [
        {
            "id": str(hit.passage.id),
            "page_content": hit.passage.text,
            "metadata": {"title": hit.passage.title, "score": hit.score, "shown": rank < query.shown},
        }
        for rank, hit in enumerate(query.hits)
    ]


def _attributes(row: dict[str, Any]) -> dict[str, Any]:
    names = ("em", "f1", "decomposed", "llm_calls", "searches", "sub_queries", "well_formed", "gold_recall")
    return {name: row[name] for name in (*names, "reward_total", "model_tokens", "observation_tokens")}


def _tags(row: dict[str, Any]) -> dict[str, str]:
    names = ("arm", "seed", "dataset", "structure", "qid", "stop_reason", "em", "decomposed")
    return {name: str(row[name]) for name in names if row[name] is not None}


def _with_starts(rows: list[dict[str, Any]], result: ArmResult) -> Iterator[tuple[dict[str, Any], int]]:
    """Rows with start times (nanoseconds): one after the other, ending when the newest episodes file was written."""
    if not rows:
        return
    clock = max(path.stat().st_mtime_ns for path in result.episodes) - _duration(sum(row["seconds"] for row in rows))
    for row in rows:
        yield row, clock
        clock += _duration(row["seconds"])


def _duration(seconds: float) -> int:
    return round(seconds * NANOSECONDS)


def trace_ids(store: Store, run_id: str) -> list[str]:
    """Ids of the traces that are linked to a run."""
    return [trace.info.trace_id for trace in _traces(store, run_id, spans=False)]


def _traces(store: Store, run_id: str, spans: bool) -> list[Trace]:
    found: list[Trace] = []
    token = None
    while True:
        page = store.client.search_traces(
            locations=[store.experiment_id], run_id=run_id, max_results=200, page_token=token, include_spans=spans
        )
        found += page
        token = page.token
        if not token:
            return found


def _content(result: ArmResult, limit: int) -> str:
    digests = [sha256(path) for path in result.episodes]
    return hashlib.sha256(f"{limit} {digests}".encode()).hexdigest()
