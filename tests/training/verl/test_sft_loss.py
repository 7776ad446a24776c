"""What veRL's SFT loss sees, and its value, against a plain forward pass of the policy; and the policy that is left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from parallelsearch.config import ArmConfig
from parallelsearch.config_files import load_arm, load_study
from parallelsearch.runs.checkpoints import Checkpoints
from parallelsearch.training.verl.job import job_environment
from parallelsearch.training.verl.policy_export import export_policy
from parallelsearch.training.verl.sft_config import sft_overrides
from parallelsearch.training.verl.token_rows import TokenRow, write_token_rows
from parallelsearch.training.warm_start.policy import build_policy, save_policy, train_tokenizer

pytest.importorskip("verl.trainer")
CONFIG = Path(__file__).resolve().parents[3] / "config"
PROBE = Path(__file__).with_name("sft_loss_probe.py")
STUDY = load_study(config_dir=CONFIG)
ROWS = [
    TokenRow([10, 11, 12, 13, 14], [0, 0, 1, 1, 1]),
    TokenRow([20, 21, 22, 23, 24, 25, 26, 27], [0, 0, 1, 1, 0, 0, 1, 1]),  # an observation in the middle
    TokenRow([30, 31, 32], [0, 0, 1]),
    TokenRow([40, 41, 42, 43, 44, 45], [0, 1, 1, 0, 0, 1]),
]
STEPS = 2


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps of veRL's trainer on the rows above, all of them in each step, in two passes of two rows."""
    folder = tmp_path_factory.mktemp("sft")
    tokenizer = train_tokenizer(["Which city is larger?"] * 3, 320)
    small = STUDY.policy.model_copy(update={"hidden_size": 16, "layers": 1, "heads": 2})
    save_policy(build_policy(small, tokenizer, 0), tokenizer, folder / "initial")
    loaded = load_arm(STUDY, "sft", CONFIG)
    sizes = {"steps": STEPS, "batch_size": 4, "micro_batch_size": 2, "save_every": 1}
    arm: ArmConfig = loaded.model_copy(update={"training": loaded.training.model_copy(update=sizes)})
    write_token_rows(folder / "train.parquet", ROWS)
    arguments = sft_overrides(arm, str(folder / "initial"), folder / "train.parquet", folder / "checkpoints")
    environment = job_environment(arm, folder / "verl-metrics.jsonl")
    command = [sys.executable, str(PROBE), str(folder / "calls.json"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def log_probs(policy: Path, ids: list[int]) -> torch.Tensor:
    """Of each token but the first, given those before it, by the Hugging Face model alone."""
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, :-1]
    return logits.log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def test_the_loss_gets_each_row_once_with_its_own_mask(job: Path) -> None:
    calls = json.loads((job / "calls.json").read_text())
    assert len(calls) == 2 * STEPS
    for step in range(STEPS):
        seen = [row for call in calls[2 * step : 2 * step + 2] for row in call["rows"]]
        expected = [[row.input_ids, row.loss_mask] for row in ROWS]
        assert sorted(row[:2] for row in seen) == sorted(expected)


def test_the_first_loss_is_the_mean_over_the_learned_tokens_alone(job: Path) -> None:
    with (job / "verl-metrics.jsonl").open() as stream:
        first = json.loads(next(stream))["data"]
    learned = [
        value
        for row in ROWS
        for value, own in zip(log_probs(job / "initial", row.input_ids), row.loss_mask[1:], strict=True)
        if own
    ]
    assert len(learned) == 3 + 4 + 1 + 3
    assert first["train/loss"] == pytest.approx(-sum(map(float, learned)) / 11, abs=1e-4)
    assert first["train/global_tokens"] == 5 + 8 + 3 + 6
    assert first["timing_s/step"] > 0


def test_the_steps_leave_a_policy_that_gives_the_rows_a_higher_probability(job: Path) -> None:
    checkpoints = Checkpoints(job / "checkpoints", ranks=1, supervised=True)
    assert checkpoints.latest == STEPS
    export_policy(checkpoints.policy(STEPS), job / "policy")

    def learned(policy: Path) -> float:
        pairs = [(log_probs(policy, row.input_ids), torch.tensor(row.loss_mask[1:])) for row in ROWS]
        return sum(float((values * mask).sum()) for values, mask in pairs)

    assert learned(job / "policy") > learned(job / "initial")
