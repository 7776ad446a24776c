"""The address of a store with its password, as the workflow handles it: Snakemake and its jobs write it nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkout import ENVIRONMENT, Checkout
from postgres import ENCODED, PASSWORD, Postgres

from parallelsearch.files import read_json


def holding(folder: Path, secret: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


def test_a_password_in_the_configuration_is_refused_and_not_repeated(checkout: Checkout) -> None:
    said = checkout.refusal("all", "--config", "tracking={uri: 'postgresql://me:geheim@db/mlflow'}")
    assert "tracking.uri holds a password" in said and "uri: $MLFLOW_TRACKING_URI" in said
    assert "geheim" not in said and not holding(checkout.root, "geheim")


@pytest.mark.slow
def test_an_address_in_the_environment_stays_there(checkout: Checkout, database: Postgres) -> None:
    environment = {**ENVIRONMENT, "STORE": database.address_with_password}
    study = ("--config", f"tracking={{experiment: workflow, uri: $STORE, artifacts: {checkout.root / 'artifacts'}}}")
    targets = ("results/config.yaml", "results/mlflow/store.json")
    done = checkout.snakemake(*targets, "-p", *study, environment=environment)
    assert done.returncode == 0, done.stdout
    assert read_json(checkout.root / "results" / "mlflow" / "store.json")["uri"] == "$STORE"
    assert "uri: $STORE" in (checkout.root / "results" / "config.yaml").read_text()
    log = (checkout.root / "results" / "logs" / "track_init" / "job.log").read_text()
    assert f"postgresql+psycopg://mlflow:***@127.0.0.1:{database.port}/mlflow" in log
    for secret in (PASSWORD, ENCODED):
        assert secret not in done.stdout and not holding(checkout.root, secret)
    with database.connect() as connection:
        assert connection.execute("SELECT count(*) FROM experiments WHERE name = 'workflow'").fetchone() == (1,)
