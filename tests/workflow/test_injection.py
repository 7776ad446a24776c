"""Hostile names, paths, texts and targets through Snakemake itself: refused in a sentence, or text and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from checkout import ENVIRONMENT, Checkout
from hostile import COMMANDS, EVERY_COMMAND, OWNED, PLACES, SCRIPT
from planted_secrets import SECRETS, holding

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


def owned(checkout: Checkout) -> list[Path]:
    """Whatever a command of the hostile texts has made, in the checkout or above it."""
    return [*checkout.root.rglob(OWNED), *checkout.root.parent.glob(OWNED), *checkout.root.parent.parent.glob(OWNED)]


@pytest.mark.parametrize("place", ["results", "arm", "data set", "raw file"])  # all: tests/test_hostile_config.py
def test_a_hostile_name_path_or_address_is_refused_before_anything_is_planned(checkout: Checkout, place: str) -> None:
    (checkout.root / "hostile.yaml").write_text(yaml.safe_dump(PLACES[place](EVERY_COMMAND)))
    said = checkout.refusal("all", "--configfile", "hostile.yaml")
    assert "Traceback" not in said
    assert re.search(r"configuration: .*(letters, digits|begins with http)", said, re.DOTALL), said
    assert owned(checkout) == []


def test_a_hostile_file_name_of_an_arm_is_refused_as_an_arm_and_as_a_target(checkout: Checkout) -> None:
    hostile = f"x;touch {OWNED};$(touch {OWNED})"
    (checkout.root / "config" / "arms" / f"{hostile}.yaml").write_text("description: one\n")
    done = checkout.snakemake(f"results/train/{hostile}/seed0/done.json", "--cores", "1")
    assert done.returncode != 0 and "a name has letters, digits" in done.stdout
    assert owned(checkout) == []


# Of these the jobs are planned, and end in the command's own sentence; of the others nothing can be planned.
PLANNED = ["results/tables/{}.csv", "results/figures/{}.pdf"]
NOT_PLANNED = [
    "results/eval/{}/seed0/geoworld.test/episodes.parquet",
    "results/encoders/{}/manifest.json",
    "results/embeddings/geoworld.multilingual-e5-small/shard-0-of-{}.npy",
]


def test_hostile_wildcards_reach_commands_as_one_word_or_not_at_all(finished: Checkout) -> None:
    """Whatever the targets need is there, so that their commands run."""
    bad = " ".join(value for name, value in COMMANDS.items() if "/" not in value and name != "line")
    for targets in (PLANNED, *([target] for target in NOT_PLANNED)):
        done = finished.snakemake(*(target.format(bad) for target in targets), "--cores", "2")
        assert done.returncode != 0, done.stdout
        assert owned(finished) == []
    logs = [path.read_text() for path in (finished.root / "results" / "logs").glob("*/*touch*.log")]
    assert len(logs) == len(PLANNED) and all("no table" in text or "no figure" in text for text in logs), logs


def test_hostile_texts_arrive_as_they_are_and_run_nothing(checkout: Checkout) -> None:
    """Licence, experiment, description, the name of a model: free text, through real commands to where it is kept."""
    text = f"{EVERY_COMMAND} {SCRIPT}"
    overlay = {
        "results": "results",
        "corpora": {"geoworld": {"source": "geoworld", "licence": text}},
        "tracking": {"experiment": text},
        "evaluation": {"judge": {"url": "http://127.0.0.1:9/v1", "model": text}},
        "geoworld": {"passages": 200, "train_questions": 8, "dev_questions": 8, "test_questions": 8},
    }
    (checkout.root / "hostile.yaml").write_text(yaml.safe_dump(overlay))
    arm = checkout.root / "config" / "arms" / "search-r1.yaml"
    described = {**yaml.safe_load(arm.read_text()), "description": text}
    arm.write_text(yaml.safe_dump(described))
    targets = [f"results/{name}" for name in ("corpus/geoworld/manifest.json", "mlflow/store.json", "config.yaml")]
    environment = ENVIRONMENT | SECRETS
    done = checkout.snakemake(*targets, "--configfile", "hostile.yaml", "--cores", "2", environment=environment)
    assert done.returncode == 0, done.stdout[-3000:]
    assert owned(checkout) == []
    assert holding(checkout.root) == []  # Snakemake's logs and records among it
    assert json.loads((checkout.root / targets[0]).read_text())["licence"] == text
    merged = yaml.safe_load((checkout.root / targets[2]).read_text())
    assert merged["study"]["evaluation"]["judge"]["model"] == text
    assert merged["arms"]["search-r1"]["description"] == text
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{checkout.root / 'results' / 'mlflow' / 'mlflow.db'}")
    assert client.get_experiment_by_name(text) is not None


def test_a_path_with_spaces_and_brackets_is_one_path(checkout: Checkout) -> None:
    raw = checkout.root / "data" / "my questions (2018), dev.json"
    raw.parent.mkdir()
    row = {
        "_id": "1",
        "question": f"Who {EVERY_COMMAND}?",
        "answer": "Oslo",
        "type": "comparison",
        "level": "hard",
        "supporting_facts": [["Oslo", 0]],
        "context": [["Oslo", ["Oslo is a city."]]],
    }
    raw.write_text(json.dumps([row]))
    splits = {"dev": {"path": str(raw.relative_to(checkout.root)), "questions": 1}}
    overlay = {"datasets": {"mine": {"reader": "hotpotqa", "corpus": "geoworld", "splits": splits}}}
    (checkout.root / "hostile.yaml").write_text(yaml.safe_dump(overlay))
    target = "results/questions/mine.dev.parquet"
    done = checkout.snakemake(target, "--configfile", "hostile.yaml", "--cores", "1")
    assert done.returncode == 0, done.stdout[-3000:]
    from parallelsearch.questions.store import read_questions

    [question] = read_questions(checkout.root / target)
    assert f"touch {OWNED}" in question.text
    assert owned(checkout) == []


def test_every_value_in_a_command_line_of_the_workflow_is_quoted() -> None:
    placeholders = []
    for file in [ROOT / "Snakefile", *sorted((ROOT / "workflow" / "rules").glob("*.smk"))]:
        for block in re.findall(r"^ {4}shell:\n((?: {8}.*\n)+)", file.read_text(), flags=re.MULTILINE):
            placeholders += re.findall(r"\{[^{}]+\}", block)
    assert len(placeholders) > 80
    assert {found for found in placeholders if not found.endswith(":q}")} == {
        "{threads}",
        "{PARALLELSEARCH_TRAIN_PATH:-$PATH}",  # of the shell, in quotes
        "{PARALLELSEARCH_EVALUATE_PATH:-$PATH}",
    }
