"""The MLflow store: created once, before any job could race for it, and opened by the one collector that writes to it.

By default it is a SQLite file in results/mlflow with the artifacts beside it. Jobs never write to it: they write
result files, so that no two processes migrate, lock or fill the database at the same time. Several studies may collect
into one store at once: into an SQLite file they go one after the other.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from parallelsearch.config import TrackingConfig
from parallelsearch.errors import DataError
from parallelsearch.files import read_json, write_json
from parallelsearch.tracking.faults import StoreUnavailable, patiently
from parallelsearch.tracking.place import DATABASE, Place, own_place, place_of

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

__all__ = ["DATABASE", "MARKER", "Store", "connect", "create", "locked", "log_artifact", "require_marker"]

MARKER = "store.json"  # written last by `create`
PROXIED = "mlflow-artifacts"  # a location that a server resolves against its --artifacts-destination
_LOCK = ".lock"
# MLflow's own retries (7, over minutes) are cut short: the whole collection is tried again, for as long as was asked
# for.
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
}


@dataclass(frozen=True)
class Store:
    """An open store: the client, where it is, and the experiment of the study."""

    client: MlflowClient
    place: Place
    experiment: str
    experiment_id: str

    @property
    def uri(self) -> str:
        return self.place.uri


def create(folder: Path, settings: TrackingConfig) -> Store:
    """Creates database and experiment unless they exist, then the marker. Safe to be called by several processes.

    Where the configured store does not answer, the study's own store takes its place for now.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder} cannot be made ({error.strerror}); choose another results folder.") from None

    def opened(place: Place) -> Store:
        work, lock = partial(connect, folder, place, settings), partial(locked, folder, place)
        return patiently(place, settings.patience, work, lock)

    try:
        store = opened(place_of(folder, settings))
    except StoreUnavailable:
        if settings.uri is None:
            raise
        store = opened(own_place(folder))
    import mlflow

    marker = {**settings.model_dump(mode="json"), "mlflow": mlflow.__version__}
    if not (folder / MARKER).exists() or read_json(folder / MARKER) != marker:
        write_json(folder / MARKER, marker)
    return store


def require_marker(folder: Path) -> TrackingConfig:
    """The settings that the store was created with."""
    folder = Path(folder)
    if not (folder / MARKER).is_file():
        raise DataError(f"{folder} holds no MLflow store; run `parallelsearch track init {folder}` first.")
    values = read_json(folder / MARKER)
    return TrackingConfig.model_validate({key: values[key] for key in TrackingConfig.model_fields if key in values})


def connect(folder: Path, place: Place, settings: TrackingConfig) -> Store:
    """An open store with its experiment, which is created where it is missing. Raises what MLflow raises."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # its tracebacks; the error is raised, too
    with locked(folder, place):
        client = MlflowClient(place.uri, place.uri)
        experiment = _experiment(client, place, settings.experiment)
    if experiment.lifecycle_stage != "active":
        raise DataError(
            f"the MLflow experiment '{settings.experiment}' in {place.name} is deleted;"
            " restore it or choose another tracking.experiment."
        )
    return Store(client, place, settings.experiment, experiment.experiment_id)


def _experiment(client: MlflowClient, place: Place, name: str) -> Experiment:
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        location = None if place.artifacts is None else f"{PROXIED}:/{re.sub(r'[^A-Za-z0-9.-]', '_', name)}"
        try:
            client.create_experiment(name, location)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another process was faster
                raise
        found = client.get_experiment_by_name(name)
    if found is None:
        raise DataError(f"the MLflow experiment '{name}' in {place.name} was just deleted; run it again.")
    return found


@contextmanager
def locked(folder: Path, place: Place | None = None) -> Iterator[None]:
    """Holds the lock file of a results folder, and that of an SQLite store elsewhere; waits for who has them."""
    folders = [Path(folder).resolve()]
    if place is not None and place.database is not None:
        place.database.parent.mkdir(parents=True, exist_ok=True)
        folders.append(place.database.parent.resolve())
    with ExitStack() as held:
        for each in dict.fromkeys(folders):
            stream = held.enter_context((each / _LOCK).open("w"))
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def log_artifact(store: Store, run: Run, path: Path, folder: str | None = None) -> None:
    """Stores a file among the artifacts of a run, in `folder`.

    Locations begin with mlflow-artifacts:, so that a server finds them wherever the store was moved. MLflow's client
    only resolves them through a server; without one the file is put where a server will look.
    """
    location = urlsplit(str(run.info.artifact_uri))
    if store.place.artifacts is None or location.scheme != PROXIED:
        store.client.log_artifact(run.info.run_id, str(path), folder)
        return
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

    target = store.place.artifacts / location.path.lstrip("/")
    try:
        LocalArtifactRepository(target.as_uri()).log_artifact(str(path), folder)
    except OSError as error:
        raise DataError(
            f"{path.name} cannot be stored in the artifacts folder {store.place.artifacts} ({error.strerror});"
            " mend that, or set tracking.artifacts to another folder, and run it again."
        ) from None
