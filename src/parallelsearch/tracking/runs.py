"""One MLflow run for each arm and seed: parameters, training curves, final figures, tags and the merged config.

Everything is written so that a collection which was broken off anywhere can be done again: a run has its key from its
creation on, only missing figures are added, and the mark of a complete run is its last tag.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from parallelsearch.evaluation import metrics
from parallelsearch.evaluation.episodes import read_provenance
from parallelsearch.tracking.names import (
    TAG_LENGTH,
    flattened,
    is_metric,
    sanitised,
    sanitised_names,
    shortened,
)
from parallelsearch.tracking.results import ArmResult
from parallelsearch.tracking.store import Store, log_artifact
from parallelsearch.tracking.stored_traces import delete_traces, trace_ids
from parallelsearch.tracking.study import STUDY

if TYPE_CHECKING:
    from mlflow.entities import Metric, Run

KEY = "parallelsearch.key"
CONTENT = "parallelsearch.content"
TRACES = "parallelsearch.traces"
FAILURE = "failure"  # why a training was ended early
METRICS_PER_BATCH, PARAMETERS_PER_BATCH, TAGS_PER_BATCH = 800, 100, 100  # MLflow takes 1000 items in one call
T = TypeVar("T")


@dataclass(frozen=True)
class Written:
    """A run in the store and what the collection did with it: created, updated or unchanged."""

    run_id: str
    action: str
    metrics: int = 0
    traces: str = ""  # checksum of the traces it has


def write_run(store: Store, result: ArmResult, study: str) -> Written:
    """Creates the run of `result`, or brings the one with the same key up to date.

    A run whose curves contradict the files (it was trained again with the same config) is deleted and written anew.
    """
    content = result.content()
    run = find_run(store, result.key, study)
    curve = training_metrics(result)
    if run is not None and run.data.tags.get(CONTENT) == content:
        return Written(run.info.run_id, "unchanged", traces=run.data.tags.get(TRACES, ""))
    known = _stored_curve(store, run, curve) if run is not None else {}
    if any(known.get((metric.key, metric.step), metric.value) != metric.value for metric in curve):
        assert run is not None
        remove_run(store, run.info.run_id)
        run, known = None, {}
    labels = tags(result) | {STUDY: study}
    action = "updated" if run is not None else "created"
    if run is None:
        run = create_run(store, f"{result.arm} seed {result.seed}", labels, _start(result))
    run_id = str(run.info.run_id)
    new = [metric for metric in curve if (metric.key, metric.step) not in known]
    new += _final_metrics(result, run.data.metrics)
    log(store, run_id, new, parameters(result), labels)
    if FAILURE in run.data.tags and not result.failure:  # the run has gone on since
        store.client.delete_tag(run_id, FAILURE)
    for path in result.files:
        if path.suffix != ".parquet":
            log_artifact(store, run, path, "run")
    _set_status(store, run_id, result)
    store.client.set_tag(run_id, CONTENT, content)  # last: a collection that was killed is done again
    return Written(run_id, action, len(new), run.data.tags.get(TRACES, ""))


def find_run(store: Store, key: str, study: str) -> Run | None:
    """The study's active run with the key, whichever collection made it.

    Where there is more than one (see `create_run`), all collections keep the same one: the first by its id.
    """
    found = store.client.search_runs([store.experiment_id], f"tags.`{KEY}` = '{key}'", max_results=1000)
    own = sorted((run for run in found if run.data.tags.get(STUDY, study) == study), key=lambda run: run.info.run_id)
    for run in own[1:]:
        remove_run(store, run.info.run_id)
    return own[0] if own else None


def create_run(store: Store, name: str, labels: dict[str, str], start: int | None = None) -> Run:
    """A new run that has its tags, KEY and STUDY among them, from its beginning: if it is never filled, it is found.

    Another run may have been created meanwhile, by a collection of a copy of the study, or by the same request sent
    twice because its answer was lost. Whoever comes last sees both, and one of them goes.
    """
    tags = {key: shortened(value, TAG_LENGTH) for key, value in labels.items()}
    run = store.client.create_run(store.experiment_id, start, tags, name)
    return find_run(store, labels[KEY], labels[STUDY]) or run


def remove_run(store: Store, run_id: str) -> None:
    """Deletes a run and its traces; one that is already gone is no error."""
    from mlflow.exceptions import MlflowException

    try:
        delete_traces(store, trace_ids(store, run_id))
        store.client.delete_run(run_id)
    except MlflowException as error:
        if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            raise


def log(store: Store, run_id: str, values: Sequence[Metric], parameters: dict[str, str], tags: dict[str, str]) -> None:
    """Writes metrics, parameters and tags in as few calls as MLflow's limits allow."""
    from mlflow.entities import Param, RunTag

    batches = zip_longest(
        _batches(values, METRICS_PER_BATCH),
        _batches([Param(key, shortened(value)) for key, value in parameters.items()], PARAMETERS_PER_BATCH),
        _batches([RunTag(key, shortened(value, TAG_LENGTH)) for key, value in tags.items()], TAGS_PER_BATCH),
        fillvalue=(),
    )
    for points, settings, labels in batches:
        store.client.log_batch(run_id, metrics=points, params=settings, tags=labels)


def parameters(result: ArmResult) -> dict[str, str]:
    """The merged config, flattened."""
    flat = flattened(result.config)
    names = sanitised_names(flat, f"config of {result.arm}, seed {result.seed}")
    return {names[key]: value for key, value in flat.items()}


def tags(result: ArmResult) -> dict[str, str]:
    """Key, arm, seed, config and input checksums, versions, and the arm's description as the run's note."""
    values = {
        KEY: result.key,
        "arm": result.arm,
        "seed": str(result.seed),
        "config_sha256": result.config_sha256,
        "mlflow.source.name": "parallelsearch",
        "mlflow.note.content": str(result.config.get("description", "")),
        FAILURE: result.failure,
    }
    done = result.training.done if result.training else {}
    values |= {f"input.{sanitised(name)}": str(text) for name, text in done.get("inputs", {}).items()}
    values |= {f"version.{sanitised(name)}": str(text) for name, text in done.get("versions", {}).items()}
    for path in result.episodes:
        origin = read_provenance(path)
        for name in ("policy", "index", "corpus", "questions"):
            values[f"eval.{path.parent.name}.{name}"] = getattr(origin, f"{name}_sha256")
        values[f"eval.{path.parent.name}.top_k"] = str(origin.top_k)
    return {name: text for name, text in values.items() if text}


def training_metrics(result: ArmResult) -> list[Metric]:
    """The curves: every finite figure of every step, in milliseconds since the run's start."""
    from mlflow.entities import Metric

    if result.training is None:
        return []
    steps = result.training.metrics
    where = str(result.training.folder / "metrics.jsonl")
    names = sanitised_names(dict.fromkeys(key for step in steps for key in step), where)
    clock, curve = float(_start(result)), []
    for step in steps:
        clock += 1000 * (step["seconds"] if is_metric(step.get("seconds")) else 0)
        curve += [
            Metric(names[key], float(value), int(clock), int(step["step"]))
            for key, value in step.items()
            if key != "step" and is_metric(value)
        ]
    return curve


def _final_metrics(result: ArmResult, stored: dict[str, float]) -> list[Metric]:
    """`eval/{dataset}/{structure}/{figure}` of the episodes files; `eval_published/...` of the published protocol,
    and `eval_unlimited/...` of what was answered without the study's limits.

    Those that `stored` does not have. They are as old as the newest file, so that two collections write the same; a
    figure that has changed is as old as this collection, for MLflow shows the youngest.
    """
    from mlflow.entities import Metric

    now, written = int(time.time() * 1000), _newest(result)
    apart = {"eval_published": result.published_episodes, "eval_unlimited": result.unlimited_episodes}
    values = []
    for path in (*result.episodes, *result.published_episodes, *result.unlimited_episodes):
        judgements = path.with_name("judgements.parquet")
        episodes = metrics.load([path], [judgements] if judgements.is_file() else [])
        for row in metrics.summarise(episodes, by=["dataset", "structure"]).to_dict("records"):
            kind = next((kind for kind, files in apart.items() if path in files), "eval")
            prefix = f"{kind}/{row.pop('dataset')}/{row.pop('structure')}"
            figures = {sanitised(f"{prefix}/{name}"): float(value) for name, value in row.items() if is_metric(value)}
            values += [
                Metric(name, value, now if name in stored else written, 0)
                for name, value in figures.items()
                if stored.get(name) != value
            ]
    return values


def _stored_curve(store: Store, run: Run, curve: Iterable[Metric]) -> dict[tuple[str, int], float]:
    return {
        (name, metric.step): metric.value
        for name in dict.fromkeys(metric.key for metric in curve)
        for metric in store.client.get_metric_history(run.info.run_id, name)
    }


def _set_status(store: Store, run_id: str, result: ArmResult) -> None:
    if result.complete:
        store.client.set_terminated(run_id, "FINISHED", end_time=_newest(result))
    elif result.failure:
        store.client.set_terminated(run_id, "FAILED", end_time=_newest(result))
    else:
        store.client.update_run(run_id, status="RUNNING")


def _start(result: ArmResult) -> int:
    """Milliseconds since 1970: when the training began, reckoned back from its newest file."""
    steps = result.training.metrics if result.training else []
    seconds = sum(step["seconds"] for step in steps if is_metric(step.get("seconds")))
    own = [path for path in result.files if path.suffix != ".parquet"] or result.files
    return int(1000 * (max(map(_modified, own)) - seconds))


def _newest(result: ArmResult) -> int:
    return int(1000 * max(map(_modified, result.files)))


def _modified(path: Path) -> float:
    return path.stat().st_mtime


def _batches(values: Iterable[T], size: int) -> Iterator[list[T]]:
    remaining = iter(values)
    while batch := list(islice(remaining, size)):
        yield batch
