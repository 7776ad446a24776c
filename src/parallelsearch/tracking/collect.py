"""The one collector: reads result files only, writes MLflow, and says in collected.json what it did.

Where the configured store does not answer, the study's own store in results/mlflow is filled instead, and
`import_results` brings the same files into the configured one later. Both write only what is missing.
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

from parallelsearch.config import TrackingConfig
from parallelsearch.files import sha256, write_json
from parallelsearch.plan.paths import Results
from parallelsearch.tracking.faults import StoreUnavailable, patiently
from parallelsearch.tracking.place import Place, own_place, place_of
from parallelsearch.tracking.registry import register
from parallelsearch.tracking.results import ArmResult, find
from parallelsearch.tracking.runs import CONTENT, KEY, create_run, find_run, write_run
from parallelsearch.tracking.store import Store, connect, locked, log_artifact, require_marker
from parallelsearch.tracking.stored_traces import trace_ids
from parallelsearch.tracking.study import STUDY, study_id
from parallelsearch.tracking.traces import write_traces

COLLECTED = "collected.json"
_STUDY_FILES = ("tables/*.csv", "tables/*.md", "tables/*.tex", "figures/*.pdf", "figures/*.png", "figures/*.csv")


def collect(root: Path, settings: TrackingConfig) -> dict[str, Any]:
    """Collects a results folder and returns what collected.json says. A second collection updates, never duplicates.

    `pending` there names the store that did not answer, and "" where everything is in the store that was configured.
    """
    folder = Results(root).mlflow()
    require_marker(folder)
    place = place_of(folder, settings)
    try:
        return _collect_into(place, root, settings)
    except StoreUnavailable as error:
        if settings.uri is None:
            raise StoreUnavailable(f"{error}; nothing is lost: run it again when the store is free.") from error
        return _collect_into(own_place(folder), root, settings, pending=place.name)


def import_results(root: Path, settings: TrackingConfig | None = None) -> dict[str, Any]:
    """Collects into the configured store (by default the one that the study was tracked with), or not at all."""
    folder = Results(root).mlflow()
    known = require_marker(folder)
    place = place_of(folder, settings or known)
    try:
        return _collect_into(place, root, settings or known)
    except StoreUnavailable as error:
        raise StoreUnavailable(
            f"{error}; nothing is lost: run `parallelsearch track import {root}` again when it answers."
        ) from error


def _collect_into(place: Place, root: Path, settings: TrackingConfig, pending: str = "") -> dict[str, Any]:
    results = Results(root)
    records, study = find(results.root), study_id(results)

    def once() -> dict[str, Any]:
        store = connect(results.mlflow(), place, settings)
        with locked(results.mlflow(), place):
            return _write_all(store, results, records, study, settings)

    lock = partial(locked, results.mlflow(), place)
    summary = patiently(place, settings.patience, once, lock) | {"store": place.name, "pending": pending}
    write_json(results.mlflow() / COLLECTED, summary)
    return summary


def _write_all(
    store: Store, results: Results, records: list[ArmResult], study: str, settings: TrackingConfig
) -> dict[str, Any]:
    written = [write_run(store, record, study) for record in records]
    study_run_id = write_study_run(store, results, study)
    failures: list[str] = []
    for record, run in zip(records, written, strict=True):
        failures += write_traces(store, run, record, settings.traces_per_run)
    shared = store.place != own_place(results.mlflow())
    best = register(store, [(record, run.run_id) for record, run in zip(records, written, strict=True)], shared)
    return {
        "experiment": settings.experiment,
        "study": study,
        "runs": [
            {
                "arm": record.arm,
                "seed": record.seed,
                "key": record.key,
                "run_id": run.run_id,
                "action": run.action,
                "complete": record.complete,
                "failure": record.failure,
                "metrics": run.metrics,
                "traces": len(trace_ids(store, run.run_id)),
            }
            for record, run in zip(records, written, strict=True)
        ],
        "study_run_id": study_run_id,
        "best_versions": best,
        "failed_traces": failures,
        "inputs": {str(path): sha256(path) for record in records for path in record.files},
    }


def write_study_run(store: Store, results: Results, study: str) -> str | None:
    """The run that holds the study's config, tables and figures as artifacts; None where there are none."""
    files = [path for pattern in _STUDY_FILES for path in sorted(results.root.glob(pattern))]
    files += [path for path in (results.config(),) if path.is_file()]
    if not files:
        return None
    content = hashlib.sha256("".join(f"{path.name} {sha256(path)}" for path in files).encode()).hexdigest()
    run = find_run(store, "study", study)
    if run is not None and run.data.tags.get(CONTENT) == content:
        return str(run.info.run_id)
    if run is None:
        run = create_run(store, "study", {KEY: "study", STUDY: study, "mlflow.source.name": "parallelsearch"})
    run_id = str(run.info.run_id)
    for path in files:
        log_artifact(store, run, path, path.parent.name if path.parent != results.root else None)
    store.client.set_tag(run_id, STUDY, study)
    store.client.set_terminated(run_id, "FINISHED")
    store.client.set_tag(run_id, CONTENT, content)
    return run_id
