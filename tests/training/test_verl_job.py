"""What surrounds veRL's process: its data file and its environment."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from parallelsearch.config_files import load_arm, load_study
from parallelsearch.records import Question, Structure
from parallelsearch.training.agent_loop import question_of
from parallelsearch.training.verl_job import CPU_PLUGIN, job_environment, write_data

CONFIG = Path(__file__).resolve().parents[2] / "config"
STUDY = load_study(config_dir=CONFIG)


def test_a_row_of_the_data_file_holds_the_whole_question_and_the_prompt(tmp_path) -> None:
    question = Question("q", "geoworld", "train", "Who?", ("A", "B"), "bridge", Structure.SEQUENTIAL, 2, ("T",), (4,))
    arm = load_arm(STUDY, "parallelsearch", CONFIG)
    write_data(tmp_path / "train.parquet", arm, [question, question])
    row = pd.read_parquet(tmp_path / "train.parquet").iloc[1]
    assert question_of(row["extra_info"]["question"]) == question
    assert row["extra_info"]["index"] == 1
    assert row["prompt"][0]["content"] == "Question: Who?\n"
    assert row["agent_name"] == "parallelsearch"


def test_a_jobs_processes_keep_their_compiled_modules(monkeypatch, tmp_path) -> None:
    """Where a container forbids them, each of about ten processes would compile all of veRL and PyTorch anew."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    arm = load_arm(load_study(), "search-r1")

    assert "PYTHONDONTWRITEBYTECODE" not in job_environment(arm, tmp_path / "metrics.jsonl")


def test_the_users_own_modules_are_imported_after_the_cpu_platform(monkeypatch, tmp_path) -> None:
    arm = load_arm(load_study(), "search-r1")
    monkeypatch.delenv("VERL_USE_EXTERNAL_MODULES", raising=False)
    assert job_environment(arm, tmp_path)["VERL_USE_EXTERNAL_MODULES"] == CPU_PLUGIN
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "my.probe")
    assert job_environment(arm, tmp_path)["VERL_USE_EXTERNAL_MODULES"] == f"{CPU_PLUGIN},my.probe"
