"""Training curves out of veRL's log and the records of episodes: what is counted, joined, resumed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from parallelsearch.runs.run_folder import read_metrics
from parallelsearch.training.verl.training_metrics import TrainingMetrics, episode_means


def record(step: int, episode: str, structure: str = "parallel", **changes) -> dict:
    values = {
        "step": step,
        "episode": episode,
        "structure": structure,
        "reward": {"outcome": 1.0, "total": 1.45},
        "em": 1.0,
        "decomposed": True,
        "llm_calls": 2,
        "searches": 1,
        "well_formed": True,
        "stop_reason": "answered",
        "response_tokens": 100,
        "model_tokens": 40,
    }
    return values | changes


def test_means_by_structure_worked_out_by_hand() -> None:
    means = episode_means(
        [
            record(1, "a"),
            record(1, "b", decomposed=False, llm_calls=3, em=0.0, reward={"total": -0.25}),
            record(1, "c", "sequential", decomposed=False, llm_calls=3, reward={"total": 1.15}),
        ]
    )
    assert means["decomposition_ratio"] == pytest.approx(1 / 3)
    assert means["decomposition_ratio/parallel"] == 0.5
    assert means["decomposition_ratio/sequential"] == 0.0
    assert means["turns/parallel"] == 2.5
    assert means["reward_mean"] == pytest.approx((1.45 - 0.25 + 1.15) / 3)
    assert means["em/parallel"] == 0.5
    assert "turns/mixed" not in means


def test_failures_of_the_infrastructure_are_counted_and_enter_no_mean() -> None:
    means = episode_means([record(1, "a"), record(1, "b", stop_reason="retriever_error", decomposed=False)])
    assert (means["episodes"], means["failures"]) == (2, 1)
    assert means["decomposition_ratio"] == 1.0


def write_run(folder: Path, metrics: TrainingMetrics, steps: list[int]) -> None:
    (folder / "records").mkdir(parents=True, exist_ok=True)
    with (folder / "records" / "worker-1.jsonl").open("a") as stream:
        for step in steps:
            stream.write(json.dumps(record(step, f"{step}/a")) + "\n")
    with metrics.verl_log.open("a") as stream:
        for step in steps:
            row = {"step": step, "data": {"timing_s/step": 2.5, "actor/entropy": 0.3, "val-aux/x": 1.0}}
            stream.write(json.dumps(row) + "\n")


def test_rows_come_as_steps_finish_and_a_resumed_run_rewrites_later_ones(tmp_path) -> None:
    (tmp_path / "data").mkdir()
    seen: list[int] = []
    metrics = TrainingMetrics(tmp_path, finished_steps=0)
    seen += [row["step"] for row in metrics.collect()]
    write_run(tmp_path, metrics, [1, 2])
    seen += [row["step"] for row in metrics.collect()]
    write_run(tmp_path, metrics, [3])
    with metrics.verl_log.open("a") as stream:
        stream.write('{"step": 4, "da')  # the process was killed here
    seen += [row["step"] for row in metrics.collect()]
    assert seen == [1, 2, 3]

    resumed = TrainingMetrics(tmp_path, finished_steps=2)  # the last checkpoint was that of step 2
    assert resumed.first_step == 3
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [1, 2]
    write_run(tmp_path, resumed, [3])
    list(resumed.collect())
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert rows[-1]["episodes"] == 1
    assert rows[-1]["seconds"] == 2.5
    assert rows[-1]["actor/entropy"] == 0.3
    assert "val-aux/x" not in rows[-1]


def test_a_figure_that_verl_could_not_write_is_not_a_number(tmp_path) -> None:
    """veRL's log is JSON without NaN: a loss that is not a finite number stands there as null."""
    (tmp_path / "data").mkdir()
    metrics = TrainingMetrics(tmp_path, finished_steps=0)
    write_run(tmp_path, metrics, [1])
    with metrics.verl_log.open("a") as stream:
        stream.write('{"step": 2, "data": {"timing_s/step": 2.5, "actor/grad_norm": null, "val-aux/x": null}}\n')
    rows = list(metrics.collect())
    assert "actor/grad_norm" not in rows[0] and math.isnan(rows[1]["actor/grad_norm"])
    assert "val-aux/x" not in rows[1]


def test_entropy_is_estimated_from_the_sampled_tokens_and_gibberish_counted() -> None:
    means = episode_means(
        [
            record(1, "a", log_prob=-30.0, model_tokens=40, tagged=True),
            record(1, "b", log_prob=-50.0, model_tokens=60, tagged=False),
            record(1, "c", log_prob=-99.0, model_tokens=9, stop_reason="retriever_error", tagged=False),
        ]
    )
    assert means["entropy"] == pytest.approx(0.8)  # (30 + 50) / (40 + 60)
    assert means["gibberish"] == 0.5
    assert "entropy" not in episode_means([record(1, "a")])  # of a run that did not record it


def test_a_step_that_verl_did_not_live_to_log_is_still_known_by_its_episodes(tmp_path) -> None:
    (tmp_path / "data").mkdir()
    metrics = TrainingMetrics(tmp_path, finished_steps=0)
    write_run(tmp_path, metrics, [1])
    assert [row["step"] for row in metrics.collect()] == [1]
    assert metrics.unlogged() is None
    with (tmp_path / "records" / "worker-1.jsonl").open("a") as stream:
        stream.write(json.dumps(record(2, "2/a", stop_reason="retriever_error")) + "\n")
    assert metrics.unlogged() == {"step": 2, "episodes": 1, "failures": 1}


def test_rows_that_a_killed_job_did_not_write_come_from_verls_log_or_else_from_the_episodes(tmp_path) -> None:
    """The command was killed while veRL saved step 3, and then veRL before it logged that step."""
    (tmp_path / "data").mkdir()
    metrics = TrainingMetrics(tmp_path, finished_steps=0)
    write_run(tmp_path, metrics, [1])
    list(metrics.collect())
    write_run(tmp_path, metrics, [2])
    with (tmp_path / "records" / "worker-1.jsonl").open("a") as stream:
        stream.write(json.dumps(record(3, "3/a", em=0.0)) + "\n")
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [1]

    resumed = TrainingMetrics(tmp_path, finished_steps=3)
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert [(row["step"], row["em"], row["seconds"]) for row in rows] == [(1, 1.0, 2.5), (2, 1.0, 2.5), (3, 0.0, 0.0)]
    assert "actor/entropy" in rows[1] and "actor/entropy" not in rows[2]
    assert (resumed.earlier, resumed.last, resumed.first_step) == (rows, rows[-1], 4)
    assert resumed.unlogged() is None


def test_a_record_that_is_being_written_is_not_read_yet(tmp_path) -> None:
    """The episodes of the next step are recorded while the last one's are read."""
    (tmp_path / "data").mkdir()
    metrics = TrainingMetrics(tmp_path, finished_steps=0)
    write_run(tmp_path, metrics, [1])
    assert [row["episodes"] for row in metrics.collect()] == [1]
    written = json.dumps(record(2, "2/a", error="Zürich"), ensure_ascii=False).encode()
    half_a_letter = written.index("ü".encode()) + 1
    for length in (1, half_a_letter, len(written)):
        (tmp_path / "records" / "worker-2.jsonl").write_bytes(written[:length])
        assert metrics.unlogged() is None
    (tmp_path / "records" / "worker-2.jsonl").write_bytes(written + b"\n")
    assert metrics.unlogged()["episodes"] == 1
