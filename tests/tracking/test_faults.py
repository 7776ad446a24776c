"""A collection whose store is down, restarts or is locked, or which is killed: nothing is lost, nothing doubled."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import real_study
from collectors import SOON, assert_whole, small_study, start, wait_until
from mlflow import MlflowClient
from mlflow_server import MlflowServer, free_port
from postgres import Postgres

from parallelsearch import cli
from parallelsearch.config import TrackingConfig
from parallelsearch.errors import DataError
from parallelsearch.files import read_json
from parallelsearch.plan.paths import Results
from parallelsearch.tracking.collect import collect, import_results
from parallelsearch.tracking.store import create

pytestmark = pytest.mark.slow
ARMS = ("search-r1", "parallelsearch")


@pytest.fixture
def study(collected_once: real_study.RealStudy, tmp_path: Path) -> Results:
    return small_study(collected_once.results.root, tmp_path / "results", arms=ARMS)


@pytest.fixture
def own(study: Results, empty_database: Path) -> Path:
    """The study's own database, with nothing collected yet."""
    study.mlflow().mkdir()
    return Path(shutil.copy(empty_database, study.mlflow() / "mlflow.db"))


def counter(database: Postgres, experiment: str) -> Callable[[str], int]:
    """Counts rows that belong to an experiment, beside the server."""
    tables = {
        "runs": "runs r",
        "metrics": "metrics m JOIN runs r ON m.run_uuid = r.run_uuid",
        "traces": "trace_info r",
        "versions": "model_versions v JOIN runs r ON v.run_id = r.run_uuid",
    }

    def count(table: str) -> int:
        query = f"SELECT count(*) FROM {tables[table]} JOIN experiments e ON r.experiment_id = e.experiment_id"
        with database.connect() as connection:
            row = connection.execute(f"{query} WHERE e.name = %s".encode(), (experiment,)).fetchone()
        return int(row[0]) if row else 0

    return count


# -- the server ------------------------------------------------------------------------------------------------------


def test_runs_are_collected_offline_while_the_server_is_down_and_imported_once(
    study: Results, own: Path, postgres_server: MlflowServer, client: MlflowClient
) -> None:
    down = TrackingConfig(experiment="offline", uri=f"http://127.0.0.1:{free_port()}", traces_per_run=2, patience=0.5)
    create(study.mlflow(), down)
    summary = collect(study.root, down)
    assert summary["pending"] == down.uri and summary["store"] == str(own.resolve())
    assert_whole(MlflowClient(f"sqlite:///{own}"), down, [study])
    with pytest.raises(
        DataError, match=r"does not answer .*; nothing is lost: run `parallelsearch track import .*` again"
    ):
        import_results(study.root)

    up = down.model_copy(update={"uri": postgres_server.address})  # the same server, seen at an address that answers
    assert {run["action"] for run in import_results(study.root, up)["runs"]} == {"created"}
    assert_whole(client, up, [study])
    moved = study.root.rename(study.root.with_name("moved"))
    again = import_results(moved, up)
    assert {run["action"] for run in again["runs"]} == {"unchanged"} and again["pending"] == ""
    assert_whole(client, up, [Results(moved)])


def test_a_killed_import_is_completed_by_the_next_one(
    study: Results, postgres_server: MlflowServer, database: Postgres, client: MlflowClient
) -> None:
    settings = TrackingConfig(experiment="killed", uri=postgres_server.address, traces_per_run=4)
    create(study.mlflow(), settings)
    count = counter(database, settings.experiment)
    for table, rows in (("runs", 1), ("metrics", 300), ("runs", 3), ("traces", 1), ("traces", 6), ("versions", 1)):
        process = start(study, settings, "import")
        wait_until(lambda table=table, rows=rows: count(table) >= rows, process)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(SOON)
        assert process.exitcode == -signal.SIGKILL
        assert not (study.mlflow() / "collected.json").exists()
    import_results(study.root)
    assert_whole(client, settings, [study])
    for arm in ARMS:
        assert len(client.search_model_versions(f"name = 'killed.{arm}'")) == 1


def test_postgresql_may_be_restarted_during_a_collection(
    study: Results, postgres_server: MlflowServer, database: Postgres, client: MlflowClient
) -> None:
    settings = TrackingConfig(experiment="restarted", uri=postgres_server.address, traces_per_run=4)
    create(study.mlflow(), settings)
    count = counter(database, settings.experiment)
    process = start(study, settings)
    for mode, table in (("fast", "metrics"), ("immediate", "traces")):  # connections are closed; the server crashes
        wait_until(lambda table=table: count(table) > 0, process)
        database.stop(mode)
        try:
            time.sleep(1)
            assert process.is_alive()
        finally:
            database.start()
    process.join(SOON)
    assert process.exitcode == 0, (study.root / "said.txt").read_text()
    assert read_json(study.mlflow() / "collected.json")["pending"] == ""
    assert_whole(client, settings, [study])


# -- an SQLite file ---------------------------------------------------------------------------------------------------

HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=60)
connection.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.readline()
"""


@contextmanager
def held(path: Path) -> Iterator[subprocess.Popen]:
    """Another process has the database's write lock until a line is written to it."""
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            if process.poll() is None:
                process.communicate("\n")


def test_a_locked_database_is_waited_for(study: Results, own: Path) -> None:
    settings = TrackingConfig(traces_per_run=2)
    create(study.mlflow(), settings)
    with held(own):
        process = start(study, settings)
        time.sleep(2)
        assert process.is_alive()
    process.join(SOON)
    assert process.exitcode == 0
    assert_whole(MlflowClient(f"sqlite:///{own}"), settings, [study])


def test_a_database_that_is_locked_in_the_middle_is_waited_for(study: Results, own: Path) -> None:
    settings = TrackingConfig(traces_per_run=2)
    create(study.mlflow(), settings)

    def runs() -> int:
        with closing(sqlite3.connect(own, timeout=60)) as connection:
            return int(connection.execute("SELECT count(*) FROM runs").fetchone()[0])

    process = start(study, settings)
    wait_until(runs, process)
    with held(own):
        time.sleep(2)
        assert process.is_alive()
    process.join(SOON)
    assert process.exitcode == 0
    assert_whole(MlflowClient(f"sqlite:///{own}"), settings, [study])


def test_a_database_that_stays_locked_ends_in_one_sentence_and_loses_nothing(
    study: Results, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = '{"patience": 1, "traces_per_run": 2}'
    create(study.mlflow(), TrackingConfig.model_validate_json(settings))
    with held(own), pytest.raises(SystemExit) as stop:
        cli.main(["track", "collect", str(study.root), "--settings", settings])
    said = capsys.readouterr().err
    assert stop.value.code == 1 and said.count("\n") == 1
    assert f"the MLflow store {own.resolve()} is locked by another process" in said
    assert "nothing is lost: run it again when the store is free" in said
    collect(study.root, TrackingConfig.model_validate_json(settings))
    assert_whole(MlflowClient(f"sqlite:///{own}"), TrackingConfig(), [study])
