"""A small study for the tests of tracking, and a store to collect it into."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import real_study
from mlflow import MlflowClient
from mlflow_server import MlflowServer, mlflow_server
from postgres import PASSWORD, Postgres

from parallelsearch.plan.paths import Results
from parallelsearch.tracking.store import DATABASE, Store, create


@pytest.fixture(scope="session")
def collected_once(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> real_study.RealStudy:
    """A study of five arms and one seed; tests take a copy of it."""
    return real_study.build(tmp_path_factory.mktemp("tracked"), shared_data, seeds=(0,))


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database without the study's experiment; the migration takes seconds, a copy does not."""
    folder = tmp_path_factory.mktemp("empty")
    create(folder, real_study.TRACKING.model_copy(update={"experiment": "of another study"}))
    return folder / DATABASE


@pytest.fixture
def results(tmp_path: Path, collected_once: real_study.RealStudy) -> Results:
    """A fresh copy of the study's result files."""
    shutil.copytree(collected_once.results.root, tmp_path / "results", copy_function=shutil.copy2)
    return Results(tmp_path / "results")


@pytest.fixture
def store(results: Results, empty_database: Path) -> Store:
    """The store of that study, with nothing collected yet."""
    results.mlflow().mkdir()
    shutil.copy(empty_database, results.mlflow() / DATABASE)
    return create(results.mlflow(), real_study.TRACKING)


@pytest.fixture(scope="session")
def postgres_server(database: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    """An MLflow server over it, which stores and shows the artifacts itself."""
    folder = tmp_path_factory.mktemp("server")
    with mlflow_server(database.address, folder / "artifacts", folder, PGPASSWORD=PASSWORD) as server:
        yield server


@pytest.fixture
def client(postgres_server: MlflowServer, database: Postgres) -> MlflowClient:
    """Looks into the server's database directly."""
    return MlflowClient(database.address_with_password.replace("postgresql:", "postgresql+psycopg:", 1))
