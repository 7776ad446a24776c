"""A training folder at every moment of its life."""

from __future__ import annotations

from pathlib import Path

import pytest

from parallelsearch.errors import DataError
from parallelsearch.files import write_json, write_text
from parallelsearch.runs.training_runs import read_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "train" / "parallelsearch" / "seed2"
    write_text(folder / "config.yaml", "reward: {lambda_d: 0.15, lambda_s: 0.35, semantics: paper}\n")
    write_text(folder / "metrics.jsonl", '{"step": 1, "em": 0.1}\n{"step": 2, "em": 0.2}\n')
    return folder


def test_a_run_in_progress_has_its_steps_and_is_not_complete(folder: Path) -> None:
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 3, "em"')
    run = read_run(folder)
    assert (run.arm, run.seed, run.complete) == ("parallelsearch", 2, False)
    assert [step["step"] for step in run.metrics] == [1, 2]
    assert (run.weight("lambda_d"), run.weight("lambda_s")) == (0.15, 0.35)


def test_a_broken_line_of_a_complete_run_is_named(folder: Path) -> None:
    write_json(folder / "done.json", {"arm": "parallelsearch", "seed": 2})
    assert read_run(folder).complete
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.write("{")
    with pytest.raises(DataError, match=r"metrics\.jsonl, line 3 is not JSON"):
        read_run(folder)
    (folder / "metrics.jsonl").unlink()
    with pytest.raises(DataError, match=r"metrics\.jsonl is missing although"):
        read_run(folder)


def test_a_missing_weight_names_file_and_key(folder: Path) -> None:
    write_text(folder / "config.yaml", "agent: {}\n")
    with pytest.raises(DataError, match=r"config\.yaml has no number reward\.lambda_d"):
        read_run(folder).weight("lambda_d")
