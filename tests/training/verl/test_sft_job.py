"""What surrounds veRL's SFT trainer: its figures under our names, the data it gets, and what is refused before."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import psutil
import pytest

from parallelsearch.config_files import load_arm, load_study
from parallelsearch.errors import TrainingError
from parallelsearch.records import Question, Structure
from parallelsearch.runs.run_folder import read_metrics
from parallelsearch.training.process.child_process import running_child
from parallelsearch.training.verl import sft_job
from parallelsearch.training.verl.sft_job import SupervisedMetrics, in_drawn_order, torchrun, train_on_rows
from parallelsearch.training.verl.token_rows import TokenRow, read_token_rows

CONFIG = Path(__file__).resolve().parents[3] / "config"
ARM = load_arm(load_study(config_dir=CONFIG), "sft", CONFIG)
VERL = {"train/loss": 2.5, "train/lr": 0.001, "train/global_tokens": 557, "timing_s/step": 0.25, "train/mfu": 0.01}


def log(metrics: SupervisedMetrics, *steps: int) -> None:
    metrics.verl_log.parent.mkdir(parents=True, exist_ok=True)
    with metrics.verl_log.open("a") as stream:
        stream.writelines(json.dumps({"step": step, "data": VERL}) + "\n" for step in steps)


def test_a_steps_row_has_verls_figures_and_the_facts_of_the_demonstrations(tmp_path: Path) -> None:
    metrics = SupervisedMetrics(tmp_path, 0, {"sampled/kept": 31})
    log(metrics, 1, 2)
    list(metrics.collect())
    expected = {"loss": 2.5, "learning_rate": 0.001, "tokens": 557.0, "seconds": 0.25, "sampled/kept": 31}
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": step, **expected} for step in (1, 2)]


def test_steps_after_the_last_checkpoint_are_logged_anew(tmp_path: Path) -> None:
    metrics = SupervisedMetrics(tmp_path, 0, {})
    log(metrics, 1, 2, 3)
    list(metrics.collect())
    resumed = SupervisedMetrics(tmp_path, 2, {})
    assert resumed.first_step == 3
    log(resumed, 3)
    list(resumed.collect())
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [1, 2, 3]


def test_seeds_draw_orders_of_their_own() -> None:
    questions = [Question(str(n), "d", "train", "?", ("a",), "t", Structure.SINGLE) for n in range(50)]
    one, same, other = (in_drawn_order(questions, seed) for seed in (0, 0, 1))
    assert one == same != other
    assert sorted(one, key=lambda question: int(question.qid)) == questions


def test_nothing_to_learn_from_is_told_before_verl_starts(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"nothing to learn from: .* raise agent\.max_prompt_tokens"):
        train_on_rows(tmp_path, ARM, str(tmp_path), iter(()), {})


def test_few_rows_are_repeated_until_they_fill_a_batch(tmp_path: Path) -> None:
    rows = [TokenRow([1, 2], [0, 1]), TokenRow([3, 4, 5], [0, 1, 1])]
    assert sft_job._write_batches(tmp_path / "train.parquet", rows, 5) == 2
    assert read_token_rows([tmp_path / "train.parquet"])["input_ids"].to_pylist() == [
        [1, 2], [3, 4, 5], [1, 2], [3, 4, 5], [1, 2],
    ]  # fmt: skip


def test_ending_torchrun_ends_its_ranks(tmp_path: Path) -> None:
    """Each rank is in a session of its own, so it is torchrun that has to end them."""
    script = tmp_path / "rank.py"
    script.write_text(
        "import os, time; from pathlib import Path\n"
        f"path = Path({str(tmp_path)!r}) / ('rank' + os.environ['RANK'])\n"
        "path.write_text(str(os.getpid())); time.sleep(300)\n"
    )
    ranks = [tmp_path / "rank0", tmp_path / "rank1"]
    with running_child(torchrun(2, str(script)), tmp_path / "log", os.environ):
        end = time.monotonic() + 120
        while not all(rank.exists() and rank.read_text() for rank in ranks):
            assert time.monotonic() < end, (tmp_path / "log").read_text()
            time.sleep(0.1)
        pids = [int(rank.read_text()) for rank in ranks]
        assert all(psutil.pid_exists(pid) for pid in pids)
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=10)
    assert not alive
