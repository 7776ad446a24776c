"""What surrounds veRL's process: its data file and its environment."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from parallelsearch.config_files import load_arm, load_study
from parallelsearch.corpus.passages import Corpus, build_corpus
from parallelsearch.errors import DataError
from parallelsearch.records import Question, Structure
from parallelsearch.retrieval.indexes.parts import corpus_part
from parallelsearch.training.agent_loop import question_of
from parallelsearch.training.verl.job import ADVANTAGES, CPU_PLUGIN, SEEDS, gold_of, job_environment, write_data

CONFIG = Path(__file__).resolve().parents[3] / "config"
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
    research = arm.agent.model_copy(update={"prompt": "research_system", "tags": "research"})
    write_data(tmp_path / "research.parquet", arm.model_copy(update={"agent": research}), [question])
    system, user = pd.read_parquet(tmp_path / "research.parquet").iloc[0]["prompt"]
    assert (system["role"], user["role"], user["content"]) == ("system", "user", "Who?")
    assert "</result>" in system["content"]


@pytest.fixture
def index(tmp_path) -> Path:
    """An index folder, as far as its corpus goes."""
    pages = [{"id": "0", "contents": '"Oslo"\ncapital fjord'}, {"id": "1", "contents": '"Lima"\ncity of kings'}]
    (tmp_path / "pages.jsonl").write_text("".join(json.dumps(page) + "\n" for page in pages))
    build_corpus("wiki18", tmp_path / "pages.jsonl", tmp_path / "corpus")
    (tmp_path / "index").mkdir()
    part = corpus_part(Corpus(tmp_path / "corpus"), tmp_path / "index")
    (tmp_path / "index" / "manifest.json").write_text(json.dumps({"corpus": part}))
    return tmp_path / "index"


def test_gold_paragraphs_stand_in_the_rows_of_an_arm_that_reads_them(tmp_path, index: Path) -> None:
    asked = [
        Question(str(number), "musique", "train", "Who?", ("A",), "2hop", Structure.SEQUENTIAL, 2, titles)
        for number, titles in enumerate([("Oslo",), ("Rome",)])
    ]
    arm = load_arm(STUDY, "stepsearch", CONFIG)
    gold = gold_of(arm, index, asked)
    assert gold == [("Oslo\ncapital fjord",), ()]
    write_data(tmp_path / "train.parquet", arm, asked, gold)
    rows = pd.read_parquet(tmp_path / "train.parquet")["extra_info"]
    assert [json.loads(row["gold_paragraphs"]) for row in rows] == [["Oslo\ncapital fjord"], []]

    assert gold_of(load_arm(STUDY, "parallelsearch", CONFIG), index, asked) == [(), ()]
    with pytest.raises(DataError, match="no supporting page of any of the 1 questions, which the reward of stepsearch"):
        gold_of(arm, index, asked[1:])


def test_a_jobs_processes_keep_their_compiled_modules(monkeypatch, tmp_path) -> None:
    """Where a container forbids them, each of about ten processes would compile all of veRL and PyTorch anew."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    arm = load_arm(load_study(), "search-r1")

    assert "PYTHONDONTWRITEBYTECODE" not in job_environment(arm, tmp_path / "metrics.jsonl")


def test_the_users_own_modules_are_imported_after_the_cpu_platform(monkeypatch, tmp_path) -> None:
    arm = load_arm(load_study(), "search-r1")
    monkeypatch.delenv("VERL_USE_EXTERNAL_MODULES", raising=False)
    assert job_environment(arm, tmp_path)["VERL_USE_EXTERNAL_MODULES"] == f"{CPU_PLUGIN},{ADVANTAGES},{SEEDS}"
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "my.probe")
    assert job_environment(arm, tmp_path)["VERL_USE_EXTERNAL_MODULES"] == f"{CPU_PLUGIN},{ADVANTAGES},{SEEDS},my.probe"
    on_gpus = arm.model_copy(update={"training": arm.training.model_copy(update={"device": "cuda"})})
    assert job_environment(on_gpus, tmp_path)["VERL_USE_EXTERNAL_MODULES"] == f"{ADVANTAGES},{SEEDS},my.probe"
