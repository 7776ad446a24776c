"""Where a store is, and that its passwords stay in memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from parallelsearch import cli
from parallelsearch.config import TrackingConfig
from parallelsearch.config.tracking import masked
from parallelsearch.config_files import from_json
from parallelsearch.errors import ConfigError
from parallelsearch.tracking.place import PASSWORD, USERNAME, own_place, place_of


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("postgresql://me:geheim@db/mlflow", "holds a password"),
        ("https://me:geheim@tracking.example", "holds a password"),
        ("postgresql://me@db/mlflow?password=geheim", "holds a password"),
        ("postgresql://me@db/mlflow", "set tracking.artifacts to the folder"),
        ("sqlite:///mlflow.db", "give an absolute path"),
        ("ftp://db/mlflow", "is no address of an MLflow store; give http://..., https://..."),
        ("results/mlflow", "is no address of an MLflow store"),
        ("http://tracking.example:5OOO", "is no address of an MLflow store"),
        ("http://[::1:5000", "is no address of an MLflow store"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_in_one_sentence(uri: str, words: str) -> None:
    with pytest.raises(ConfigError, match=r"^tracking: tracking\.uri ") as refused:
        from_json(TrackingConfig, f'{{"uri": "{uri}"}}', "tracking")
    assert words in str(refused.value) and "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    "settings",
    ['{"url": "http://me:geheim@db"}', '{"uri": "http://me:geheim@db", }', '["http://me:geheim@db"]'],
)
def test_a_password_in_a_mistaken_setting_is_not_repeated(
    settings: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["track", "init", str(tmp_path), "--settings", settings])
    said = capsys.readouterr().err
    assert "http://me:***@db" in said and "geheim" not in said


def test_passwords_of_addresses_are_masked_whatever_they_hold() -> None:
    assert masked("postgresql://me:a:b@c/d@db/x and http://me@host") == "postgresql://me:***@db/x and http://me@host"


def test_without_an_address_the_store_is_the_studys_own(tmp_path: Path) -> None:
    place = place_of(tmp_path, TrackingConfig())
    assert place == own_place(tmp_path)
    assert (place.database, place.artifacts) == (tmp_path / "mlflow.db", tmp_path / "artifacts")


def test_a_servers_password_goes_to_mlflow_by_the_environment_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (USERNAME, PASSWORD):
        monkeypatch.setenv(name, "before")
    monkeypatch.setenv("STORE", "https://me:ge%2Fheim@tracking.example/prefix/")
    place = place_of(tmp_path, TrackingConfig(uri="$STORE"))
    assert (place.uri, place.artifacts) == ("https://tracking.example/prefix", None)
    assert (os.environ[USERNAME], os.environ[PASSWORD]) == ("me", "ge/heim")
    assert place.hidden("told ge/heim and ge%2Fheim") == "told *** and ***"


def test_tokens_of_the_environment_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "geheim")
    assert own_place(tmp_path).hidden("Bearer geheim") == "Bearer ***"


def test_a_databases_password_stays_in_its_address_and_out_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE", "postgresql://me:geheim@db/mlflow")
    place = place_of(tmp_path, TrackingConfig(uri="${STORE}", artifacts=str(tmp_path)))
    assert place.uri == "postgresql+psycopg://me:geheim@db/mlflow"
    assert place.name == "postgresql+psycopg://me:***@db/mlflow"


def test_a_variable_that_is_not_set_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STORE", raising=False)
    with pytest.raises(ConfigError, match=r"tracking\.uri is '\$STORE', but the environment variable STORE is not set"):
        place_of(tmp_path, TrackingConfig(uri="$STORE"))
    monkeypatch.setenv("STORE", "geheim")
    with pytest.raises(ConfigError, match="and what STORE holds is no address of an MLflow store") as refused:
        place_of(tmp_path, TrackingConfig(uri="$STORE"))
    assert "geheim" not in str(refused.value)
