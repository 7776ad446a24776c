"""A complete run whose done.json was deleted is not made again, unless something that it was made with differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parallelsearch.runs import finished_run
from parallelsearch.runs.run_folder import finish_run, is_finished, start_run

CONFIG: dict[str, Any] = {"reward": {"lambda_d": 0.15}, "inputs": {"index": "abc"}}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "seed0"
    start_run(folder, CONFIG)
    (folder / "policy").mkdir()
    (folder / "policy" / "model.safetensors").write_bytes(b"weights")
    finish_run(folder, CONFIG, {"index": "abc"}, arm="search-r1", seed=0, steps=9)
    return folder


def test_the_deleted_mark_of_a_complete_run_is_put_back(run: Path) -> None:
    before = (run / "done.json").read_text()
    (run / "done.json").unlink()
    start_run(run, CONFIG)
    assert is_finished(run, CONFIG)
    assert (run / "done.json").read_text() == before


def test_a_run_with_another_configuration_is_not_finished(run: Path) -> None:
    other = CONFIG | {"reward": {"lambda_d": 0.5}}
    start_run(run, other)  # sets the complete one aside
    assert not is_finished(run, other)


def _other_code(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished_run, "code_sha256", lambda: "another")


def _other_library(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = json.loads((run / "finished.json").read_text())
    finished["done"]["versions"]["verl"] = "0.1"
    (run / "finished.json").write_text(json.dumps(finished))


def _other_weights(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run / "policy" / "model.safetensors").write_bytes(b"other")


def _no_weights(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run / "policy" / "model.safetensors").unlink()


@pytest.mark.parametrize("change", [_other_code, _other_library, _other_weights, _no_weights])
def test_a_run_of_other_code_libraries_or_weights_is_made_again(run: Path, monkeypatch, change) -> None:
    change(run, monkeypatch)
    start_run(run, CONFIG)
    assert not is_finished(run, CONFIG)
    assert not (run / "done.json").exists() and not (run / "finished.json").exists()


def test_the_codes_checksum_follows_every_file_of_the_package(tmp_path: Path, monkeypatch) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("one")
    monkeypatch.setattr(finished_run.parallelsearch, "__file__", str(package / "__init__.py"))
    before = finished_run.code_sha256()
    (package / "a.py").write_text("two")
    changed = finished_run.code_sha256()
    (package / "a.py").rename(package / "b.py")
    assert len({before, changed, finished_run.code_sha256()}) == 3
