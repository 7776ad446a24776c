"""The one collector: reads result files only, writes MLflow, and says in collected.json what it did."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from parallelsearch.config import TrackingConfig
from parallelsearch.files import sha256, write_json
from parallelsearch.paths import Results
from parallelsearch.tracking.registry import register
from parallelsearch.tracking.results import find
from parallelsearch.tracking.runs import CONTENT, KEY, find_run, log, write_run
from parallelsearch.tracking.store import Store, locked, open_store
from parallelsearch.tracking.traces import confirm_traces, send_traces, trace_ids

COLLECTED = "collected.json"
_STUDY_FILES = ("tables/*.csv", "tables/*.md", "tables/*.tex", "figures/*.pdf", "figures/*.png", "figures/*.csv")


def collect(root: Path, settings: TrackingConfig) -> dict[str, Any]:
    """Collects a results folder and returns what collected.json says. A second collection updates, never duplicates."""
    results = Results(root)
    store = open_store(results.mlflow(), settings)
    records = find(results.root)
    with locked(results.mlflow()):
        written = [write_run(store, record) for record in records]
        study_run_id = write_study_run(store, results)
        sent = [
            send_traces(store, run, record, settings.traces_per_run)
            for record, run in zip(records, written, strict=True)
        ]
        best = register(store, [(record, run.run_id) for record, run in zip(records, written, strict=True)])
        failures = confirm_traces(store, [traces for traces in sent if traces is not None])
        summary = {
            "experiment": settings.experiment,
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
        write_json(results.mlflow() / COLLECTED, summary)
    return summary


def write_study_run(store: Store, results: Results) -> str | None:
    """The run that holds the study's config, tables and figures as artifacts; None where there are none."""
    files = [path for pattern in _STUDY_FILES for path in sorted(results.root.glob(pattern))]
    files += [path for path in (results.config(),) if path.is_file()]
    if not files:
        return None
    content = hashlib.sha256("".join(f"{path.name} {sha256(path)}" for path in files).encode()).hexdigest()
    run = find_run(store, "study")
    if run is not None and run.data.tags.get(CONTENT) == content:
        return str(run.info.run_id)
    if run is None:
        run = store.client.create_run(store.experiment_id, run_name="study")
    run_id = str(run.info.run_id)
    log(store, run_id, [], {}, {KEY: "study", "mlflow.source.name": "parallelsearch"})
    for path in files:
        place = path.parent.name if path.parent != results.root else None
        store.client.log_artifact(run_id, str(path), place)
    store.client.set_terminated(run_id, "FINISHED")
    store.client.set_tag(run_id, CONTENT, content)
    return run_id
