"""The whole study for real, as short as it gets (config/smoke.yaml): every stage, veRL included, and what it leaves."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from checkout import ENVIRONMENT, Checkout
from mlflow_server import MlflowServer
from planted_secrets import SECRETS, holding

from parallelsearch.evaluation.episodes import read_episodes, read_provenance
from parallelsearch.questions.store import read_questions
from parallelsearch.records import Episode

pytestmark = pytest.mark.slow

SMOKE = ("--configfile", "config/smoke.yaml", "--config", "results=results")
ARMS = ["search-r1", "parallelsearch"]
EVALUATED = ["warm-start", *ARMS]
MAIN_TABLE = [
    "arm", "seed", "structure", "n", "em", "em_low", "em_high", "f1", "decomposition_ratio", "turns", "llm_calls",
    "searches", "seconds", "em_unlimited",
]  # fmt: skip


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The finished smoke study; its results lie in `study.root / "results"`."""
    checkout = Checkout(tmp_path_factory.mktemp("smoke"))
    begun = time.monotonic()
    done = checkout.snakemake("all", *SMOKE, timeout=1500, environment=ENVIRONMENT | SECRETS)
    assert done.returncode == 0, done.stdout[-6000:]
    checkout.seconds = time.monotonic() - begun
    return checkout


def episodes_of(study: Checkout, arm: str) -> list[Episode]:
    path = study.root / "results" / "eval" / arm / "seed0" / "geoworld.test" / "episodes.parquet"
    return [episode for episode, _ in read_episodes(path)]


def test_every_policy_answered_every_test_question(
    study: Checkout, record_property: Callable[[str, object], None]
) -> None:
    record_property("smoke_seconds", round(study.seconds))
    asked = read_questions(study.root / "results" / "questions" / "geoworld.test.parquet")
    assert len(asked) == 24
    for arm in EVALUATED:
        episodes = episodes_of(study, arm)
        assert [episode.question.qid for episode in episodes] == [question.qid for question in asked]
        assert all(episode.turns for episode in episodes)


def test_the_warm_started_policy_searches_and_is_shown_passages_of_the_index(study: Checkout) -> None:
    # The last turn of an episode may ask for a search that its limit no longer allows.
    asked = [turn for episode in episodes_of(study, "warm-start") for turn in episode.turns[:-1]]
    searches = [turn for turn in asked if turn.sub_queries]
    assert searches
    for turn in searches:
        assert all(sub_query.hits for sub_query in turn.sub_queries)
        assert turn.observation.startswith("\n\n<information>") and turn.observation_tokens > 0


@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_made_both_training_steps_with_verl_and_left_a_policy(study: Checkout, arm: str) -> None:
    folder = study.root / "results" / "train" / arm / "seed0"
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == [1, 2]
    assert all(step["seconds"] > 0 and "reward_mean" in step for step in steps)
    assert any(key.startswith("actor/") for key in steps[0]) and any(key.startswith("critic/") for key in steps[0])
    done = json.loads((folder / "done.json").read_text())
    assert (done["arm"], done["seed"], done["steps"]) == (arm, 0, 2)
    assert done["inputs"] and done["versions"]["verl"]
    assert (folder / done["policy"] / "config.json").is_file()


def test_training_moved_the_weights_and_differently_in_each_arm(study: Checkout) -> None:
    from safetensors.torch import load_file

    folders = [study.root / "results" / "warm_start" / "seed0"]
    folders += [study.root / "results" / "train" / arm / "seed0" for arm in ARMS]
    weights = [load_file(next((folder / "policy").glob("*.safetensors"))) for folder in folders]
    name = next(key for key in weights[0] if key.endswith("mlp.down_proj.weight"))
    before, one, other = (tensors[name].float() for tensors in weights)
    assert not before.equal(one) and not before.equal(other) and not one.equal(other)


def test_the_main_table_has_its_columns_every_policy_and_the_numbers_of_the_episodes(study: Checkout) -> None:
    with (study.root / "results" / "tables" / "geoworld_by_structure.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == MAIN_TABLE
    assert {row["arm"] for row in rows} == set(EVALUATED)
    for arm in EVALUATED:
        episodes = episodes_of(study, arm)
        for row in (row for row in rows if row["arm"] == arm and row["structure"] == "parallel"):
            parallel = [episode for episode in episodes if episode.question.structure == "parallel"]
            assert int(row["n"]) == len(parallel)
            turns = sum(len(episode.turns) for episode in parallel) / len(parallel)
            assert float(row["turns"]) == pytest.approx(turns, abs=1e-3)
    for extension in ("md", "tex"):
        assert (
            "parallelsearch" in (study.root / "results" / "tables" / f"geoworld_by_structure.{extension}").read_text()
        )


def test_figures_and_report_are_there_and_the_report_needs_no_other_file(study: Checkout) -> None:
    results = study.root / "results"
    for name in ("training_curves", "by_structure", "ablation_grid"):
        assert (results / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (results / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    page = (results / "report" / "index.html").read_text()
    assert all(arm in page for arm in ARMS)
    assert 'src="http' not in page and "<link" not in page


def test_mlflow_holds_one_run_for_every_arm_with_its_curve_and_traces(study: Checkout) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{study.root / 'results' / 'mlflow' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("parallelsearch")
    assert experiment is not None
    collected = json.loads((study.root / "results" / "mlflow" / "collected.json").read_text())
    assert {run["arm"] for run in collected["runs"]} == set(EVALUATED) and collected["failed_traces"] == []
    for run in collected["runs"]:
        assert client.get_run(run["run_id"]).info.experiment_id == experiment.experiment_id
        assert run["traces"] == 2
        if run["arm"] in ARMS:
            curve = client.get_metric_history(run["run_id"], "reward_mean")
            assert [point.step for point in curve] == [1, 2]


def test_the_merged_configuration_stands_beside_the_results(study: Checkout) -> None:
    import yaml

    merged = yaml.safe_load((study.root / "results" / "config.yaml").read_text())
    assert merged["study"]["training"]["steps"] == 2
    assert merged["arms"]["parallelsearch"]["reward"]["lambda_d"] == 0.15


def test_nothing_that_a_study_writes_holds_a_secret_of_its_environment(study: Checkout) -> None:
    """Logs of every job and of veRL, Snakemake's own records, configurations, episodes, MLflow's store, the report."""
    written = {path.name for path in study.root.rglob("*") if path.is_file()}
    assert {"verl.log", "mlflow.db", "index.html", "config.yaml", "episodes.parquet", "collected.json"} <= written
    assert any(path.is_file() for path in (study.root / ".snakemake" / "log").iterdir())
    assert holding(study.root) == []


def test_a_finished_study_has_nothing_left_to_do_and_snakemake_can_report_on_it(study: Checkout) -> None:
    plan = study.plan("all", *SMOKE)
    assert "Nothing to be done" in plan.output
    done = study.snakemake("all", "--report", "snakemake-report.html", *SMOKE, timeout=300)
    assert done.returncode == 0, done.stdout
    assert "train" in (study.root / "snakemake-report.html").read_text()


def test_deleted_figures_come_back_and_no_policy_is_touched(study: Checkout) -> None:
    results = study.root / "results"
    policies = sorted(results.glob("train/*/seed0/policy/*.safetensors"))
    before = [path.stat().st_mtime_ns for path in policies]
    assert len(policies) == len(ARMS)
    for path in (results / "figures").glob("training_curves.*"):
        path.unlink()
    done = study.snakemake("figures", *SMOKE, timeout=300)
    assert done.returncode == 0, done.stdout
    assert (results / "figures" / "training_curves.png").is_file()
    assert [path.stat().st_mtime_ns for path in policies] == before


def test_one_question_by_hand_prints_its_turns(study: Checkout) -> None:
    results = study.root / "results"
    done = subprocess.run(
        [
            *("parallelsearch", "ask", "In which country is Lyon?"),
            *("--policy", str(results / "train" / "parallelsearch" / "seed0")),
            *("--index", str(results / "index" / "geoworld.multilingual-e5-small.flat")),
        ],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "<think>" in done.stdout
    assert re.search(r"^Answer: .*\n\d LLM calls, \d searches", done.stdout, flags=re.MULTILINE)


def test_a_set_is_answered_a_second_time_as_the_published_evaluation_does(study: Checkout) -> None:
    target = "results/eval/parallelsearch/seed0/geoworld.test.published/episodes.parquet"
    protocol = "evaluation={'published_protocol': {'temperature': 1.0, 'drop_last': 4}}"
    done = study.snakemake(target, *SMOKE, protocol, "--rerun-triggers", "mtime", timeout=300)
    assert done.returncode == 0, done.stdout[-3000:]
    origin = read_provenance(study.root / target)
    assert origin.decoding == {"temperature": 1.0, "engine": "hf", "drop_last": 4}
    answered = [episode.question for episode, _ in read_episodes(study.root / target)]
    asked = read_questions(study.root / "results" / "questions" / "geoworld.test.parquet")
    counts = Counter(question.structure for question in asked)
    assert Counter(question.structure for question in answered) == Counter(
        {structure: count - count % 4 for structure, count in counts.items() if count >= 4}
    )


def test_the_study_completes_while_the_tracking_server_is_down_and_is_imported_later(
    study: Checkout, tmp_path: Path
) -> None:
    from mlflow import MlflowClient

    results = study.root / "results"
    server = MlflowServer(f"sqlite:///{tmp_path / 'server.db'}", tmp_path / "artifacts", tmp_path)
    tracking = f"tracking={{experiment: later, uri: '{server.address}', traces_per_run: 2, patience: 0}}"
    done = study.snakemake("all", *SMOKE, tracking, "--rerun-triggers", "params", timeout=300)
    assert done.returncode == 0, done.stdout[-3000:]
    assert json.loads((results / "mlflow" / "collected.json").read_text())["pending"] == server.address
    log = (results / "logs" / "track_collect" / "job.log").read_text()
    assert "does not answer: the runs are in" in log and "run `parallelsearch track import results` when" in log

    command = ["parallelsearch", "track", "import", "results"]
    server.start()
    try:
        for _ in range(2):
            done = subprocess.run(command, cwd=study.root, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr
        client = MlflowClient(server.address)
        experiment = client.get_experiment_by_name("later")
        assert experiment is not None
        runs = client.search_runs([experiment.experiment_id])
        assert sorted(run.data.tags.get("arm", "study") for run in runs) == sorted([*EVALUATED, "study"])
        (trained,) = [run for run in runs if run.data.tags.get("arm") == "parallelsearch"]
        assert [point.step for point in client.get_metric_history(trained.info.run_id, "reward_mean")] == [1, 2]
        assert len(client.search_traces(locations=[experiment.experiment_id])) == 2 * len(EVALUATED)
    finally:
        server.stop()
    assert json.loads((results / "mlflow" / "collected.json").read_text())["pending"] == ""
