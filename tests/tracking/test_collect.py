"""The collector on a study over real questions: what it writes, and that it writes it once."""

from __future__ import annotations

import itertools
import json
import shutil
import time
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
import real_study
import yaml
from mlflow import MlflowClient
from mlflow.entities import Run
from real_study import TRACKING as SETTINGS

from parallelsearch import cli
from parallelsearch.config import TrackingConfig
from parallelsearch.errors import DataError
from parallelsearch.evaluation.episodes import read_episodes, read_provenance, read_rows, write_episodes
from parallelsearch.files import read_json, write_json, write_text
from parallelsearch.plan.paths import Results
from parallelsearch.runs.run_folder import start_run
from parallelsearch.tracking.collect import collect
from parallelsearch.tracking.store import Store, create


def artifact_folder(store: Store, run: Run) -> Path:
    """Where a server that is given the store's artifacts folder looks for those of a run."""
    location = urlsplit(run.info.artifact_uri)
    assert location.scheme == "mlflow-artifacts" and store.place.artifacts is not None
    return store.place.artifacts / location.path.lstrip("/")


def artifacts(store: Store, run: Run) -> set[str]:
    folder = artifact_folder(store, run)
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def runs_of(store: Store) -> dict[str, Run]:
    return {run.info.run_name: run for run in store.client.search_runs([store.experiment_id])}


def test_every_arm_becomes_a_finished_run_within_half_a_minute(results: Results, store: Store) -> None:
    started = time.process_time()  # of this process: other work on the machine does not count
    summary = collect(results.root, SETTINGS)
    assert time.process_time() - started < 30
    runs = runs_of(store)
    assert set(runs) == {
        f"{arm} seed 0"
        for arm in (
            "warm-start",
            "search-r1",
            "parallelsearch",
            "no-decomposition-reward",
            "no-search-count-reward",
        )
    }
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert summary == read_json(results.mlflow() / "collected.json")
    assert {run["action"] for run in summary["runs"]} == {"created"}
    assert summary["failed_traces"] == []


def test_a_run_holds_config_curves_figures_checksums_and_files(results: Results, store: Store) -> None:
    collect(results.root, SETTINGS)
    run = runs_of(store)["parallelsearch seed 0"]
    assert run.data.params["reward.lambda_d"] == "0.15"
    assert run.data.params["training.sets"] == '["geoworld.train"]'
    done = read_json(results.train("parallelsearch", 0) / "done.json")
    assert run.data.tags["input.index"] == "2" * 64
    assert run.data.tags["input.questions/hotpotqa.train.parquet"] == "4" * 64
    assert run.data.tags["config_sha256"] == done["config_sha256"]
    assert run.data.tags["version.torch"] == done["versions"]["torch"]
    assert run.data.tags["eval.hotpotqa.dev.policy"] == "1" * 64
    assert run.data.tags["mlflow.note.content"].startswith("The four-part reward")

    folder = results.train("parallelsearch", 0)
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for key, name in (("decomposition_ratio/parallel",) * 2, ("timing(s)/gen", "timing_s_/gen")):
        history = store.client.get_metric_history(run.info.run_id, name)
        assert [(point.step, point.value) for point in sorted(history, key=lambda p: p.step)] == [
            (step["step"], step[key]) for step in steps
        ]
    times = [p.timestamp for p in sorted(store.client.get_metric_history(run.info.run_id, "em"), key=lambda p: p.step)]
    waits = [(after - before) / 1000 for before, after in itertools.pairwise(times)]
    assert waits == pytest.approx([step["seconds"] for step in steps[1:]], abs=0.002)

    rows = list(read_rows(results.episodes("parallelsearch", 0, "hotpotqa.dev"), ["structure", "em"]))
    right = [row["em"] for row in rows if row["structure"] == "parallel"]
    assert run.data.metrics["eval/hotpotqa/parallel/em"] == pytest.approx(sum(right) / len(right))
    assert artifacts(store, run) == {"run/config.yaml", "run/metrics.jsonl", "run/done.json"}


def test_a_run_without_a_reward_is_collected_with_its_loss(results: Results, store: Store) -> None:
    real_study.write_supervised_run(results, "sft", 0, [4.0, 2.0, 1.0])
    episodes = results.episodes("sft", 0, "hotpotqa.dev")
    source = results.episodes("search-r1", 0, "hotpotqa.dev")
    write_episodes(episodes, read_episodes(source), arm="sft", seed=0, provenance=read_provenance(source))
    collect(results.root, SETTINGS)
    run = runs_of(store)["sft seed 0"]
    history = sorted(store.client.get_metric_history(run.info.run_id, "loss"), key=lambda point: point.step)
    assert [(point.step, point.value) for point in history] == [(1, 4.0), (2, 2.0), (3, 1.0)]
    assert run.info.status == "FINISHED" and run.data.params["training.algorithm"] == "sft"
    assert "reward_mean" not in run.data.metrics and "eval/hotpotqa/parallel/em" in run.data.metrics


def test_a_second_collection_changes_nothing(results: Results, store: Store) -> None:
    first = collect(results.root, SETTINGS)
    second = collect(results.root, SETTINGS)
    assert {run["action"] for run in second["runs"]} == {"unchanged"}
    assert [run["run_id"] for run in second["runs"]] == [run["run_id"] for run in first["runs"]]
    assert [run["traces"] for run in second["runs"]] == [3] * 5
    run_id = first["runs"][1]["run_id"]
    assert len(store.client.get_metric_history(run_id, "em")) == 20


def test_a_run_that_went_on_is_updated_in_place_and_finished_when_it_is_complete(
    results: Results, store: Store
) -> None:
    folder = results.train("parallelsearch", 0)
    whole, done = (folder / "metrics.jsonl").read_text(), (folder / "done.json").read_text()
    (folder / "done.json").unlink()
    write_text(folder / "metrics.jsonl", "".join(line + "\n" for line in whole.splitlines()[:7]) + '{"step": 8, ')
    before = {run["arm"]: run for run in collect(results.root, SETTINGS)["runs"]}["parallelsearch"]
    assert (before["complete"], store.client.get_run(before["run_id"]).info.status) == (False, "RUNNING")
    assert len(store.client.get_metric_history(before["run_id"], "em")) == 7

    write_text(folder / "metrics.jsonl", whole)
    write_text(folder / "done.json", done)
    after = {run["arm"]: run for run in collect(results.root, SETTINGS)["runs"]}["parallelsearch"]
    assert (after["run_id"], after["action"]) == (before["run_id"], "updated")
    assert store.client.get_run(after["run_id"]).info.status == "FINISHED"
    assert sorted(p.step for p in store.client.get_metric_history(after["run_id"], "em")) == list(range(1, 21))


def test_a_run_that_the_guard_ended_is_failed_with_the_reason_until_it_goes_on(results: Results, store: Store) -> None:
    folder = results.train("parallelsearch", 0)
    shutil.rmtree(results.root / "eval" / "parallelsearch")
    (folder / "done.json").rename(folder / "kept.json")
    reason = "actor/grad_norm is nan at step 20"
    write_json(folder / "failed.json", {"kind": "diverged", "reason": reason, "step": 20})
    ended = {run["arm"]: run for run in collect(results.root, SETTINGS)["runs"]}["parallelsearch"]
    run = store.client.get_run(ended["run_id"])
    assert (ended["complete"], ended["failure"]) == (False, reason)
    assert (run.info.status, run.data.tags["failure"]) == ("FAILED", reason)
    assert "run/failed.json" in artifacts(store, run)

    (folder / "failed.json").unlink()
    gone_on = {run["arm"]: run for run in collect(results.root, SETTINGS)["runs"]}["parallelsearch"]
    run = store.client.get_run(gone_on["run_id"])
    assert (run.info.run_id, run.info.status) == (ended["run_id"], "RUNNING")
    assert "failure" not in run.data.tags


def test_a_run_trained_again_replaces_the_old_one(results: Results, store: Store) -> None:
    collect(results.root, SETTINGS)
    path = results.train("parallelsearch", 0) / "metrics.jsonl"
    steps = [json.loads(line) | {"em": 0.123} for line in path.read_text().splitlines()]
    write_text(path, "".join(json.dumps(step) + "\n" for step in steps))
    collect(results.root, SETTINGS)
    runs = runs_of(store)
    assert len(runs) == 5
    history = store.client.get_metric_history(runs["parallelsearch seed 0"].info.run_id, "em")
    assert {point.value for point in history} == {0.123}


def test_a_run_that_was_set_aside_is_not_collected(results: Results, store: Store) -> None:
    folder = results.train("parallelsearch", 0)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    shutil.copytree(folder, folder.with_name("kept"))
    start_run(folder, config | {"description": "changed"})
    assert len(list(folder.parent.glob("seed0.superseded-*"))) == 1
    runs = {run["arm"]: run for run in collect(results.root, SETTINGS)["runs"]}
    assert len(runs) == 5
    assert not runs["parallelsearch"]["complete"]


def test_another_config_is_another_run(results: Results, store: Store) -> None:
    collect(results.root, SETTINGS)
    path = results.train("parallelsearch", 0) / "config.yaml"
    config = yaml.safe_load(path.read_text())
    config["reward"]["lambda_d"] = 0.5
    config["description"] = "x" * 10_000
    write_text(path, yaml.safe_dump(config))
    collect(results.root, SETTINGS)
    same = list(store.client.search_runs([store.experiment_id], "tags.arm = 'parallelsearch'"))
    assert {run.data.params["reward.lambda_d"] for run in same} == {"0.15", "0.5"}
    long = next(run for run in same if run.data.params["reward.lambda_d"] == "0.5")
    assert "(10000 characters, sha256" in long.data.params["description"]


def test_tables_and_figures_become_artifacts_of_a_study_run(results: Results, store: Store) -> None:
    write_text(results.table("hotpotqa_by_structure", "csv"), "arm\n")
    write_text(results.config(), "seeds: [0]\n")
    first = collect(results.root, SETTINGS)["study_run_id"]
    write_text(results.table("hotpotqa_by_structure", "csv"), "arm,seed\n")
    second = collect(results.root, SETTINGS)["study_run_id"]
    assert first == second
    run = store.client.get_run(second)
    assert artifacts(store, run) == {"tables/hotpotqa_by_structure.csv", "config.yaml"}
    assert (artifact_folder(store, run) / "tables" / "hotpotqa_by_structure.csv").read_text() == "arm,seed\n"


def test_metric_names_that_collide_are_refused(results: Results, store: Store) -> None:
    path = results.train("search-r1", 0) / "metrics.jsonl"
    lines = [json.dumps(json.loads(line) | {"timing[s]/gen": 1.0}) for line in path.read_text().splitlines()]
    write_text(path, "\n".join(lines) + "\n")
    with pytest.raises(DataError, match=r"metrics\.jsonl: 'timing\(s\)/gen' and 'timing\[s\]/gen' would both"):
        collect(results.root, SETTINGS)
    assert not (results.mlflow() / "collected.json").exists()


def test_a_folder_without_results_is_named(tmp_path: Path) -> None:
    create(tmp_path / "mlflow", SETTINGS)
    with pytest.raises(DataError, match="holds no training run and no episodes"):
        collect(tmp_path, SETTINGS)


def test_an_artifacts_folder_that_cannot_be_written_is_named(
    results: Results, empty_database: Path, tmp_path: Path
) -> None:
    (tmp_path / "artifacts").write_text("a file")
    shutil.copy(empty_database, tmp_path / "shared.db")
    settings = TrackingConfig(uri=f"sqlite:///{tmp_path / 'shared.db'}", traces_per_run=0)
    create(results.mlflow(), settings)
    with pytest.raises(DataError, match=r"cannot be stored in the artifacts folder .*artifacts \(Not a directory\)"):
        collect(results.root, settings)
    (tmp_path / "artifacts").unlink()
    assert {run["action"] for run in collect(results.root, settings)["runs"]} == {"created", "updated"}


def test_the_commands_do_the_same(results: Results, capsys: pytest.CaptureFixture[str]) -> None:
    settings = '{"experiment": "by-command", "traces_per_run": 1}'
    for arm in ("warm-start", "no-decomposition-reward", "no-search-count-reward"):
        shutil.rmtree(results.root / "eval" / arm)
        shutil.rmtree(results.root / "train" / arm, ignore_errors=True)

    def run(*arguments: str) -> int:
        with pytest.raises(SystemExit) as stop:
            cli.main(["track", *arguments, "--settings", settings])
        return int(stop.value.code or 0)

    assert run("collect", str(results.root)) == 1
    assert "run `parallelsearch track init" in capsys.readouterr().err
    assert run("init", str(results.mlflow())) == 0
    assert run("collect", str(results.root)) == 0
    assert "parallelsearch seed 0: created, 1 traces\n" in capsys.readouterr().out
    config = SETTINGS.model_copy(update={"experiment": "by-command"})
    client: MlflowClient = create(results.mlflow(), config).client
    assert client.get_experiment_by_name("by-command") is not None


def test_the_published_protocol_is_stored_beside_ours_never_in_its_place(results: Results, store: Store) -> None:
    ours = results.episodes("parallelsearch", 0, "hotpotqa.dev")
    copy = results.published_episodes("parallelsearch", 0, "hotpotqa.dev")
    copy.parent.mkdir()
    pq.write_table(pq.read_table(ours).slice(0, 40), copy)
    collect(results.root, SETTINGS)
    values = runs_of(store)["parallelsearch seed 0"].data.metrics
    parallel = [row for row in read_rows(ours, ["structure"]) if row["structure"] == "parallel"]
    assert values["eval/hotpotqa/parallel/n"] == len(parallel)
    assert values["eval_published/hotpotqa/parallel/n"] < len(parallel)


def test_accuracy_without_the_limits_is_stored_beside_ours(results: Results, store: Store) -> None:
    ours = results.episodes("parallelsearch", 0, "hotpotqa.dev")
    copy = results.unlimited_episodes("parallelsearch", 0, "hotpotqa.dev")
    copy.parent.mkdir()
    pq.write_table(pq.read_table(ours).slice(0, 40), copy)
    collect(results.root, SETTINGS)
    values = runs_of(store)["parallelsearch seed 0"].data.metrics
    parallel = [row["em"] for row in read_rows(copy, ["structure", "em"]) if row["structure"] == "parallel"]
    assert values["eval_unlimited/hotpotqa/parallel/em"] == pytest.approx(sum(parallel) / len(parallel))
    assert values["eval/hotpotqa/parallel/n"] > len(parallel)
