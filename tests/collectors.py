"""Collections in processes of their own, which run at once and may be killed, and what a whole collection is."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
from mlflow import MlflowClient
from safetensors.numpy import save_file

from parallelsearch.config import TrackingConfig
from parallelsearch.errors import UserError
from parallelsearch.evaluation.episodes import read_episodes
from parallelsearch.files import read_json, write_text
from parallelsearch.plan.paths import Results
from parallelsearch.tracking.collect import collect, import_results
from parallelsearch.tracking.results import find
from parallelsearch.tracking.store import create

SOON = 600  # seconds that a collection may take
PROCESSES = multiprocessing.get_context("forkserver")  # imports MLflow once for all of them
PROCESSES.set_forkserver_preload(["parallelsearch.tracking.collect", "mlflow.store.tracking.sqlalchemy_store"])


def small_study(whole: Path, root: Path, number: int = 0, arms: Sequence[str] = ("parallelsearch",)) -> Results:
    """A copy of a study with a few of its arms, each with weights; `number` tells its curves from other copies'."""
    results = Results(root)
    for arm in arms:
        for part in ("train", "eval"):
            shutil.copytree(whole / part / arm, root / part / arm, copy_function=shutil.copy2)
        path = results.train(arm, 0) / "metrics.jsonl"
        steps = [json.loads(line) | {"reward_mean": number + step / 64} for step, line in _numbered(path)]
        write_text(path, "".join(json.dumps(step) + "\n" for step in steps))
        policy = results.train(arm, 0) / "policy"
        policy.mkdir()
        save_file({"weight": np.full(4, number, dtype=np.float32)}, policy / "model.safetensors")
    write_text(results.table("hotpotqa_by_structure", "csv"), f"arm,seed\n{number}\n")
    return results


def _numbered(path: Path) -> list[tuple[int, str]]:
    return list(enumerate(path.read_text().splitlines(), 1))


def start(results: Results, settings: TrackingConfig, verb: str = "collect") -> BaseProcess:
    """Collects in another process; a user's error ends it with exit code 1 and stands in `said.txt`."""
    process = PROCESSES.Process(target=_collect, args=(results.root, settings, verb))
    process.start()
    return process


def _collect(root: Path, settings: TrackingConfig, verb: str) -> None:
    try:
        create(root / "mlflow", settings)
        import_results(root, settings) if verb == "import" else collect(root, settings)
    except UserError as error:
        (root / "said.txt").write_text(str(error))
        raise SystemExit(1) from None


def wait_until(seen: Callable[[], object], process: BaseProcess) -> None:
    """Returns when `seen()` is true; fails when the process has ended before."""
    end = time.monotonic() + SOON
    while not seen():
        assert process.is_alive(), "the collection had ended before it could be disturbed"
        assert time.monotonic() < end
        time.sleep(0.002)


def assert_whole(client: MlflowClient, settings: TrackingConfig, studies: Sequence[Results]) -> None:
    """The experiment holds every run of the studies exactly once, with all that the files hold, and nothing else."""
    experiment = client.get_experiment_by_name(settings.experiment)
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    by_key = {(run.data.tags["parallelsearch.study"], run.data.tags["parallelsearch.key"]): run for run in runs}
    assert len(by_key) == len(runs), "two runs have the same key"
    expected, traces = set(), 0
    for results in studies:
        study = read_json(results.study())["study"]
        expected.add((study, "study"))
        for record in find(results.root):
            expected.add((study, record.key))
            run = by_key[study, record.key]
            assert (run.info.status, run.data.params["reward.semantics"]) == ("FINISHED", "paper")
            _assert_curves(client, run.info.run_id, results.train(record.arm, record.seed) / "metrics.jsonl")
            traces += _assert_traces(client, experiment.experiment_id, run.info.run_id, record.episodes[0])
    assert set(by_key) == expected
    assert len(client.search_traces(locations=[experiment.experiment_id], include_spans=False)) == traces


def _assert_curves(client: MlflowClient, run_id: str, path: Path) -> None:
    steps = [json.loads(line) for line in path.read_text().splitlines()]
    for key in steps[0].keys() - {"step"}:
        history = client.get_metric_history(run_id, key.replace("(s)", "_s_"))
        assert sorted((point.step, point.value) for point in history) == [(step["step"], step[key]) for step in steps]
    finals = [key for key in client.get_run(run_id).data.metrics if key.startswith("eval/")]
    assert "eval/hotpotqa/parallel/em" in finals
    assert all(len(client.get_metric_history(run_id, key)) == 1 for key in finals)


def _assert_traces(client: MlflowClient, experiment_id: str, run_id: str, episodes: Path) -> int:
    """Every trace of the run has all its spans; returns their number."""
    known = {episode.question.qid: episode for episode, _ in read_episodes(episodes)}
    found = client.search_traces(locations=[experiment_id], run_id=run_id, include_spans=True)
    assert len({trace.info.tags["qid"] for trace in found}) == len(found) > 0
    for trace in found:
        turns = known[trace.info.tags["qid"]].turns
        searches = [turn.sub_queries for turn in turns if turn.sub_queries]
        assert len(trace.data.spans) == 1 + len(turns) + len(searches) + sum(map(len, searches))
    return len(found)
