"""`parallelsearch evaluate` and `ask` with the policy behind a server of the OpenAI kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scripted import WORDS
from served import served

from parallelsearch import cli
from parallelsearch.config import Bm25Config, PolicyConfig
from parallelsearch.corpus.passages import build_corpus
from parallelsearch.engines.hf import HFEngine
from parallelsearch.engines.policy_server import PolicyService
from parallelsearch.evaluation.episodes import read_episodes, read_provenance
from parallelsearch.questions.store import write_questions
from parallelsearch.records import Question, Structure
from parallelsearch.retrieval.indexes.bm25 import write_bm25
from parallelsearch.training.warm_start.policy import build_policy, save_policy, train_tokenizer


@pytest.fixture
def inputs(tmp_path: Path, passages) -> Path:
    """A folder with policy, index and questions."""
    tokenizer = train_tokenizer([WORDS] * 3, 400)
    save_policy(build_policy(PolicyConfig(hidden_size=64, layers=2), tokenizer, 1), tokenizer, tmp_path / "policy")
    rows = [json.dumps({"id": p.id, "title": p.title, "text": p.text}) for p in passages]
    (tmp_path / "raw.jsonl").write_text("\n".join(rows))
    build_corpus("geoworld", tmp_path / "raw.jsonl", tmp_path / "corpus")
    write_bm25(tmp_path / "corpus", tmp_path / "index", Bm25Config())
    asked = [
        Question(f"q{n}", "d", "test", f"Which city is older, {n}?", ("Oslo",), "c", Structure.PARALLEL)
        for n in range(5)
    ]
    write_questions(tmp_path / "questions.parquet", asked)
    return tmp_path


def evaluate(folder: Path, name: str, evaluation: dict) -> Path:
    settings = {"agent": {"on_invalid": "retry", "max_generation_tokens": 10}, "evaluation": evaluation}
    arguments = ["evaluate", folder / f"{name}.parquet", "--arm", "a", "--seed", 1, "--policy", folder / "policy"]
    arguments += ["--index", folder / "index", "--questions", folder / "questions.parquet"]
    run([*arguments, "--settings", json.dumps(settings)])
    return folder / f"{name}.parquet"


def run(arguments: list) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main([str(argument) for argument in arguments])
    assert not stop.value.code


def test_a_served_policy_answers_as_a_local_one_and_its_name_is_recorded(inputs: Path, capsys) -> None:
    engine = HFEngine.open(inputs / "policy")
    with served(PolicyService(engine, "small").app) as url:
        server = {"url": f"{url}/v1", "model": "small"}
        here = evaluate(inputs, "here", {})
        there = evaluate(inputs, "there", {"engine": "openai", "server": server})
        options = ["--policy", inputs / "policy", "--index", inputs / "index", "--engine", "openai"]
        run(["ask", "Which city is older?", *options, "--url", server["url"], "--model", "small"])
    engine.close()
    ours, theirs = ([e.transcript for e, _ in read_episodes(path)] for path in (here, there))
    assert ours == theirs and all(ours)
    assert "Answer: no answer" in capsys.readouterr().out
    local, remote = read_provenance(here), read_provenance(there)
    assert local.decoding == {"temperature": 0.0, "engine": "hf"} and len(local.policy_sha256) == 64
    assert remote.decoding == {"temperature": 0.0, "engine": "openai", "model": "small"} and remote.policy_sha256 == ""


def test_a_server_without_an_address_is_refused(inputs: Path, capsys) -> None:
    options = ["--policy", inputs / "policy", "--index", inputs / "index", "--engine", "openai"]
    with pytest.raises(SystemExit):
        cli.main([str(word) for word in ["ask", "Which?", *options]])
    assert "evaluation.server is missing" in capsys.readouterr().err
