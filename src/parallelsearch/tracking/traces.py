"""Episodes as MLflow traces: episode > generation and search of every turn > sub-queries, with the times they took.

A trace's id follows from its run and episode, so that a trace which is written again is the same trace. First the trace
is created, linked to its run, then all its spans are stored in one call: wherever that is broken off, the next
collection finds what there is by the run. MLflow's tracing context would do neither: it invents ids, sends spans before
their trace, in the background, and forgets those that a store did not take. Sub-queries of one search are one batched
call, so their spans share the search's start and end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from parallelsearch.evaluation.episodes import SCHEMA, episode_of, read_rows
from parallelsearch.evaluation.metrics import STRUCTURES
from parallelsearch.files import sha256
from parallelsearch.records import SubQuery, Turn
from parallelsearch.tracking.faults import is_removed, is_temporary
from parallelsearch.tracking.names import shortened
from parallelsearch.tracking.results import ArmResult
from parallelsearch.tracking.runs import TRACES, Written
from parallelsearch.tracking.store import Store
from parallelsearch.tracking.stored_traces import delete_traces, trace_ids

if TYPE_CHECKING:
    from mlflow.entities import Span

NANOSECONDS = 1_000_000_000
SPAN_NAME_LENGTH = 80
PREVIEW_LENGTH = 1000  # what the list of traces shows of a question or an answer


def write_traces(store: Store, run: Written, result: ArmResult, limit: int) -> list[str]:
    """Stores up to `limit` episodes of an arm and seed as traces of its run, in place of other ones.

    Returns a sentence for every trace that could not be written. Nothing is done where the run has these traces
    already.
    """
    content = _content(result, limit)
    if run.traces == content:
        return []
    rows, failures = chosen_rows(result, limit), []
    wanted = {trace_id(run.run_id, row) for row in rows}
    if run.action != "created":
        delete_traces(store, [found for found in trace_ids(store, run.run_id) if found not in wanted])
    for row, start in _with_starts(rows, result):
        try:
            write_trace(store, run.run_id, row, start)
        except Exception as error:  # a trace is an illustration: the collection goes on without it and says so
            if is_temporary(error):
                raise
            failures.append(f"{result.key}, question {row['qid']}: {' '.join(str(error).split())}")
    if not failures:
        _confirm(store, run.run_id, content, wanted)
    return failures


def _confirm(store: Store, run_id: str, content: str, ids: set[str]) -> None:
    """Marks a run as having its traces; they go where another collection has removed the run meanwhile."""
    from mlflow.exceptions import MlflowException

    try:
        store.client.set_tag(run_id, TRACES, content)
    except MlflowException as error:
        if is_removed(error):
            delete_traces(store, sorted(ids))
        raise


def trace_id(run_id: str, row: dict[str, Any]) -> str:
    """The id of an episode's trace in a run: 128 bits of a checksum over all the episode holds."""
    text = json.dumps([run_id, row], sort_keys=True, default=str)
    return f"tr-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


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
    from mlflow.entities import TraceInfo, TraceLocation, TraceState
    from mlflow.tracing.client import TracingClient
    from mlflow.tracing.constant import TRACE_SCHEMA_VERSION, TRACE_SCHEMA_VERSION_KEY, TraceMetadataKey, TraceTagKey

    tree = episode_spans(trace_id(run_id, row), row, start)
    root = tree.spans[0]
    failed = episode_of(row).stop_reason.is_infrastructure_failure
    info = TraceInfo(
        trace_id=tree.trace_id,
        trace_location=TraceLocation.from_experiment_id(store.experiment_id),
        request_time=start // 1_000_000,
        execution_duration=(int(root["end_time_unix_nano"]) - start) // 1_000_000,
        state=TraceState.ERROR if failed else TraceState.OK,
        request_preview=shortened(json.dumps(tree.inputs, ensure_ascii=False), PREVIEW_LENGTH),
        response_preview=shortened(json.dumps(tree.outputs, ensure_ascii=False), PREVIEW_LENGTH),
        trace_metadata={TraceMetadataKey.SOURCE_RUN: run_id, TRACE_SCHEMA_VERSION_KEY: str(TRACE_SCHEMA_VERSION)},
        tags={**_tags(row), TraceTagKey.TRACE_NAME: root["name"]},
    )
    client = TracingClient(store.uri)
    client.start_trace(info)
    client.log_spans(store.experiment_id, tree.entities())
    return tree.trace_id


@dataclass
class SpanTree:
    """The spans of one trace, parents first, in MLflow's own layout of a stored span."""

    trace_id: str
    spans: list[dict[str, Any]] = field(default_factory=list)
    inputs: dict[str, Any] = field(default_factory=dict)  # of the root span
    outputs: dict[str, Any] = field(default_factory=dict)

    def add(
        self,
        name: str,
        kind: str,
        times: tuple[int, int],
        inputs: Any,
        outputs: Any,
        attributes: dict[str, Any],
        parent: str = "",
    ) -> str:
        """Adds a span (`times`: start and end in nanoseconds) and returns its id."""
        from mlflow.tracing.constant import SpanAttributeKey
        from mlflow.tracing.utils import dump_span_attribute_value

        values = {
            **attributes,
            SpanAttributeKey.REQUEST_ID: self.trace_id,
            SpanAttributeKey.SPAN_TYPE: kind,
            SpanAttributeKey.INPUTS: inputs,
            SpanAttributeKey.OUTPUTS: outputs,
        }
        span_id = hashlib.sha256(f"{self.trace_id} {len(self.spans)}".encode()).hexdigest()[:16]
        self.spans.append(
            {
                "trace_id": self.trace_id,
                "span_id": span_id,
                "parent_span_id": parent,
                "name": name,
                "start_time_unix_nano": times[0],
                "end_time_unix_nano": times[1],
                "status": {"code": "STATUS_CODE_OK", "message": ""},
                "attributes": {key: dump_span_attribute_value(value) for key, value in values.items()},
            }
        )
        return span_id

    def entities(self) -> list[Span]:
        from mlflow.entities import Span

        return [Span.from_dict(span) for span in self.spans]


def episode_spans(identity: str, row: dict[str, Any], start: int) -> SpanTree:
    """The spans of an episode: itself, every generation, every search, every sub-query."""
    from mlflow.entities import SpanType

    episode, tree = episode_of(row), SpanTree(identity)
    tree.inputs = {"question": episode.question.text, "golden_answers": list(episode.question.golden_answers)}
    tree.outputs = {"answer": episode.answer, "stop_reason": episode.stop_reason.value}
    if episode.error:
        tree.outputs["error"] = episode.error
    times = (start, start + _duration(episode.seconds))
    root = tree.add("episode", SpanType.AGENT, times, tree.inputs, tree.outputs, _attributes(row))
    clock, context, shown = start, episode.prompt_tokens, episode.prompt
    for number, turn in enumerate(episode.turns, 1):
        clock = _add_turn(tree, root, number, turn, clock, context, shown)
        context += turn.model_tokens + turn.observation_tokens
        shown = turn.observation
    tree.spans[0]["end_time_unix_nano"] = max(clock, times[1])
    if episode.stop_reason.is_infrastructure_failure:
        tree.spans[0]["status"] = {"code": "STATUS_CODE_ERROR", "message": episode.error}
    return tree


def _add_turn(tree: SpanTree, root: str, number: int, turn: Turn, start: int, context: int, shown: str) -> int:
    """The spans of one turn; returns the end of the last one. A search without a generation has no generation span."""
    from mlflow.entities import SpanType

    generated = start
    if turn.generated:
        generated = _add_generation(tree, root, number, turn, start, context, shown)
    if not turn.sub_queries:
        return generated
    times = (generated, generated + _duration(turn.search_seconds))
    inputs = {"sub_queries": [query.text for query in turn.sub_queries]}
    figures = {"sub_queries": len(turn.sub_queries), "observation_tokens": turn.observation_tokens}
    outputs = {"observation": turn.observation}
    search = tree.add(f"search {number}", SpanType.TOOL, times, inputs, outputs, figures, root)
    for query in turn.sub_queries:
        name = f"sub-query: {shortened(query.text, SPAN_NAME_LENGTH)}"
        figures = {"hits": len(query.hits), "shown": query.shown}
        tree.add(name, SpanType.RETRIEVER, times, {"query": query.text}, _documents(query), figures, search)
    return times[1]


def _add_generation(tree: SpanTree, root: str, number: int, turn: Turn, start: int, context: int, shown: str) -> int:
    from mlflow.entities import SpanType
    from mlflow.tracing.constant import SpanAttributeKey

    usage = {"input_tokens": context, "output_tokens": turn.model_tokens, "total_tokens": context + turn.model_tokens}
    times = (start, start + _duration(turn.generate_seconds))
    inputs = {"prompt" if number == 1 else "observation": shown}
    outputs = {"text": turn.text, "action": turn.action.value, "answer": turn.answer}
    attributes = {"action": turn.action.value, SpanAttributeKey.CHAT_USAGE: usage}
    tree.add(f"generation {number}", SpanType.LLM, times, inputs, outputs, attributes, root)
    return times[1]


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


def _content(result: ArmResult, limit: int) -> str:
    digests = [sha256(path) for path in result.episodes]
    return hashlib.sha256(f"{limit} {digests}".encode()).hexdigest()
