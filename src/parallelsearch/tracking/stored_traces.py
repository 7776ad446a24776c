"""The traces that a run already has in the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from parallelsearch.tracking.store import Store

if TYPE_CHECKING:
    from mlflow.entities import Trace

PAGE, BATCH = 200, 100  # traces that MLflow is asked for, or told to delete, in one call


def traces_of(store: Store, run_id: str, spans: bool = False) -> list[Trace]:
    """All traces that are linked to a run."""
    found: list[Trace] = []
    token = None
    while True:
        page = store.client.search_traces(
            locations=[store.experiment_id], run_id=run_id, max_results=PAGE, page_token=token, include_spans=spans
        )
        found += page
        token = page.token
        if not token:
            return found


def trace_ids(store: Store, run_id: str) -> list[str]:
    """Ids of the traces that are linked to a run."""
    return [trace.info.trace_id for trace in traces_of(store, run_id)]


def delete_traces(store: Store, ids: Sequence[str]) -> None:
    """Deletes traces with their spans."""
    for first in range(0, len(ids), BATCH):
        store.client.delete_traces(store.experiment_id, trace_ids=list(ids[first : first + BATCH]))
