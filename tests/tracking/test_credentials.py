"""Passwords and tokens stand neither in what is printed, nor in the results folder, nor in the store."""

from __future__ import annotations

from pathlib import Path

import pytest
import real_study
from collectors import assert_whole, small_study
from mlflow import MlflowClient
from mlflow_server import MlflowServer
from postgres import ENCODED, PASSWORD, Postgres

from parallelsearch import cli
from parallelsearch.config import TrackingConfig
from parallelsearch.files import read_json
from parallelsearch.plan.paths import Results
from parallelsearch.tracking.place import PASSWORD as PASSWORD_VARIABLE
from parallelsearch.tracking.place import USERNAME as USERNAME_VARIABLE

pytestmark = pytest.mark.slow
TOKEN = "t0ken-of-the-test"
SECRETS = (PASSWORD, ENCODED, TOKEN)


@pytest.fixture
def study(collected_once: real_study.RealStudy, tmp_path: Path) -> Results:
    return small_study(collected_once.results.root, tmp_path / "results")


def track(verb: str, folder: Path, settings: TrackingConfig) -> int:
    with pytest.raises(SystemExit) as stop:
        cli.main(["track", verb, str(folder), "--settings", settings.model_dump_json()])
    return int(stop.value.code or 0)


def assert_nowhere(*texts: str, folders: tuple[Path, ...]) -> None:
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert files
    for secret in SECRETS:
        assert not [text for text in texts if secret in text]
        assert not [path for path in files if secret.encode() in path.read_bytes()]


def test_of_a_database(
    study: Results,
    database: Postgres,
    client: MlflowClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("STORE", database.address_with_password)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", TOKEN)
    settings = TrackingConfig(
        experiment="credentials", uri="$STORE", artifacts=str(tmp_path / "artifacts"), traces_per_run=1, patience=1
    )
    assert track("init", study.mlflow(), settings) == 0
    assert track("collect", study.root, settings) == 0
    assert_whole(client, settings, [study])
    assert len(list((tmp_path / "artifacts").rglob("metrics.jsonl"))) == 1

    monkeypatch.setenv("STORE", database.address_with_password.replace("s3cret", "s3cret%3F"))
    assert track("collect", study.root, settings) == 1
    said = capfd.readouterr()
    assert "refuses" in said.err and "password authentication failed" in said.err
    assert "Traceback" not in said.err

    nobody = database.address_with_password.replace(str(database.port), "1")
    monkeypatch.setenv("STORE", nobody)
    assert track("collect", study.root, settings) == 0
    offline = capfd.readouterr()
    assert "://mlflow:***@127.0.0.1:1/mlflow does not answer" in offline.err
    assert read_json(study.mlflow() / "collected.json")["pending"].endswith("://mlflow:***@127.0.0.1:1/mlflow")
    texts = (said.out, said.err, offline.out, offline.err, database.dump())
    assert_nowhere(*texts, folders=(study.root, tmp_path / "artifacts"))


def test_of_a_server(
    study: Results,
    postgres_server: MlflowServer,
    database: Postgres,
    client: MlflowClient,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name in (USERNAME_VARIABLE, PASSWORD_VARIABLE):
        monkeypatch.setenv(name, "before")
    monkeypatch.setenv("STORE", postgres_server.address.replace("://", f"://someone:{ENCODED}@"))
    settings = TrackingConfig(experiment="credentials of a server", uri="$STORE", traces_per_run=1)
    assert track("init", study.mlflow(), settings) == 0
    assert track("collect", study.root, settings) == 0
    assert_whole(client, settings, [study])
    said = capfd.readouterr()
    texts = (said.out, said.err, database.dump(), postgres_server.log())
    assert_nowhere(*texts, folders=(study.root, postgres_server.artifacts))
