"""Eight studies collect into one store at the same time: nothing is lost, and none touches another's runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import real_study
from collectors import SOON, assert_whole, small_study, start
from mlflow import MlflowClient
from mlflow_server import MlflowServer

from parallelsearch.config import TrackingConfig
from parallelsearch.files import read_json
from parallelsearch.plan.paths import Results
from parallelsearch.tracking.study import study_id

pytestmark = pytest.mark.slow
WRITERS = 8


@pytest.fixture
def studies(collected_once: real_study.RealStudy, tmp_path: Path) -> Iterator[list[Results]]:
    """Eight results folders whose runs have equal names and keys, with different curves and weights."""
    whole = collected_once.results.root
    yield [small_study(whole, tmp_path / f"results-{number}", number) for number in range(WRITERS)]


def collect_at_once(studies: list[Results], settings: TrackingConfig) -> None:
    processes = [start(results, settings) for results in studies]
    for process in processes:
        process.join(SOON)
    said = [(results.root / "said.txt") for results in studies]
    assert [process.exitcode for process in processes] == [0] * len(studies), [
        path.read_text() for path in said if path.is_file()
    ]
    summaries = [read_json(results.mlflow() / "collected.json") for results in studies]
    assert [summary["pending"] for summary in summaries] == [""] * len(studies)


def assert_versions(client: MlflowClient, name: str) -> None:
    """One version for each study's policy; all are equally good, so the newest is the best."""
    versions = client.search_model_versions(f"name = '{name}'")
    assert len({version.tags["weights_sha256"] for version in versions}) == len(versions) == WRITERS
    assert int(client.get_model_version_by_alias(name, "best").version) == WRITERS


def test_into_a_server_on_postgresql(
    studies: list[Results], postgres_server: MlflowServer, client: MlflowClient
) -> None:
    settings = TrackingConfig(experiment="eight writers", uri=postgres_server.address, traces_per_run=2)
    collect_at_once(studies, settings)
    assert_whole(client, settings, studies)
    assert_versions(client, "eight writers.parallelsearch")


def test_into_one_sqlite_file(studies: list[Results], empty_database: Path, tmp_path: Path) -> None:
    database = tmp_path / "shared" / "mlflow.db"
    database.parent.mkdir()
    shutil.copy(empty_database, database)
    settings = TrackingConfig(experiment="eight writers", uri=f"sqlite:///{database}", traces_per_run=2)
    collect_at_once(studies, settings)
    client = MlflowClient(f"sqlite:///{database}")
    assert_whole(client, settings, studies)
    assert_versions(client, "eight writers.parallelsearch")
    assert len(list((database.parent / "artifacts").rglob("metrics.jsonl"))) == WRITERS


def test_copies_of_one_study_at_once_are_one_study(
    collected_once: real_study.RealStudy, postgres_server: MlflowServer, client: MlflowClient, tmp_path: Path
) -> None:
    settings = TrackingConfig(experiment="copies", uri=postgres_server.address, traces_per_run=3)
    study = small_study(collected_once.results.root, tmp_path / "results-0", arms=("search-r1", "parallelsearch"))
    study_id(study)
    copies = [study]
    for number in range(1, 4):
        shutil.copytree(study.root, tmp_path / f"results-{number}", copy_function=shutil.copy2)
        copies.append(Results(tmp_path / f"results-{number}"))
    collect_at_once(copies, settings)
    assert_whole(client, settings, [study])
    for arm in ("search-r1", "parallelsearch"):
        assert len(client.search_model_versions(f"name = 'copies.{arm}'")) == 1
