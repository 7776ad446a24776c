"""The MLflow store: created once, before any job could race for it, and opened by the one collector that writes to it.

By default it is a SQLite file in results/mlflow with the artifacts beside it. Jobs never write to it: they write
result files, so that no two processes migrate, lock or fill the database at the same time.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from parallelsearch.config import TrackingConfig
from parallelsearch.errors import DataError
from parallelsearch.files import read_json, write_json

if TYPE_CHECKING:
    from mlflow import MlflowClient

DATABASE = "mlflow.db"
ARTIFACTS = "artifacts"
MARKER = "store.json"  # written last by `create`
_LOCK = ".lock"


@dataclass(frozen=True)
class Store:
    """An open store: the client, where it points, and the experiment of the study."""

    client: MlflowClient
    uri: str
    experiment_id: str


def tracking_uri(folder: Path, settings: TrackingConfig) -> str:
    """The server of the settings, or the SQLite file in `folder`."""
    return settings.uri or f"sqlite:///{(Path(folder) / DATABASE).resolve()}"


def create(folder: Path, settings: TrackingConfig) -> Store:
    """Creates database and experiment unless they exist, then the marker. Safe to be called by several processes."""
    folder = Path(folder)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read by MLflow when it is imported
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder} cannot be made ({error.strerror}); choose another results folder.") from None
    with locked(folder), _reported(folder, settings):
        client = _client(tracking_uri(folder, settings))
        experiment = client.get_experiment_by_name(settings.experiment)
        if experiment is None:
            place = None if settings.uri else (folder / ARTIFACTS).resolve().as_uri()
            experiment = client.get_experiment(client.create_experiment(settings.experiment, place))
        if experiment.lifecycle_stage != "active":
            raise DataError(
                f"the MLflow experiment '{settings.experiment}' in {folder} is deleted;"
                " restore it or choose another tracking.experiment."
            )
        store = Store(client, tracking_uri(folder, settings), experiment.experiment_id)
        if not (folder / MARKER).exists():
            import mlflow

            marker = {"experiment": settings.experiment, "uri": settings.uri, "mlflow": mlflow.__version__}
            write_json(folder / MARKER, marker)
    return store


def open_store(folder: Path, settings: TrackingConfig) -> Store:
    """The store that `create` made; a missing one is a DataError with the command that makes it."""
    folder = Path(folder)
    if not (folder / MARKER).is_file():
        raise DataError(f"{folder} holds no MLflow store; run `parallelsearch track init {folder}` first.")
    read_json(folder / MARKER)
    return create(folder, settings)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the store's lock file; waits for the process that has it."""
    with (Path(folder) / _LOCK).open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _client(uri: str) -> MlflowClient:
    import mlflow

    logging.getLogger("mlflow.tracing.export.async_export_queue").setLevel(logging.WARNING)
    mlflow.set_tracking_uri(uri)  # traces are exported to the process's own uri
    return mlflow.MlflowClient(uri)


@contextmanager
def _reported(folder: Path, settings: TrackingConfig) -> Iterator[None]:
    """Turns what MLflow and the database raise into one sentence."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError) as error:
        reason = " ".join(str(error).split())[:300]
        where = settings.uri or folder / DATABASE
        raise DataError(f"the MLflow store {where} cannot be used ({reason}); repair, move or delete it.") from error
