"""The store is created once, by whoever comes first, and says plainly what is wrong with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from parallelsearch.config import TrackingConfig
from parallelsearch.errors import DataError
from parallelsearch.tracking.store import MARKER, create, require_marker

SETTINGS = TrackingConfig(experiment="study", uri=None, traces_per_run=0)


def test_a_second_creation_finds_the_first(tmp_path: Path) -> None:
    first, second = create(tmp_path / "mlflow", SETTINGS), create(tmp_path / "mlflow", SETTINGS)
    assert first.experiment_id == second.experiment_id
    assert (tmp_path / "mlflow" / MARKER).is_file()
    names = [experiment.name for experiment in first.client.search_experiments()]
    assert sorted(names) == ["Default", "study"]


@pytest.mark.slow
def test_eight_processes_may_create_it_at_the_same_time(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "parallelsearch.cli", "track", "init", str(tmp_path / "mlflow")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(8)]
    ends = [(process.communicate(), process.returncode) for process in running]
    assert [code for _, code in ends] == [0] * 8, [output for output, code in ends if code]
    store = create(tmp_path / "mlflow", TrackingConfig.model_validate({}))
    assert len(store.client.search_experiments(filter_string="name = 'parallelsearch'")) == 1


def test_collecting_without_a_store_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no MLflow store; run `parallelsearch track init .*mlflow` first"):
        require_marker(tmp_path / "mlflow")


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("not a database, but long enough to be read as a header of one" * 50)
    with pytest.raises(DataError, match=r"mlflow\.db cannot be used .*repair, move or delete it"):
        create(tmp_path, SETTINGS)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file")
    with pytest.raises(DataError, match=r"results/mlflow cannot be made \(Not a directory\)"):
        create(tmp_path / "results" / "mlflow", SETTINGS)


def test_a_deleted_experiment_is_not_filled(tmp_path: Path) -> None:
    store = create(tmp_path, SETTINGS)
    store.client.delete_experiment(store.experiment_id)
    with pytest.raises(DataError, match=r"experiment 'study' in .* is deleted"):
        create(tmp_path, SETTINGS)
