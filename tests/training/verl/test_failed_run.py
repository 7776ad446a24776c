"""A run that the guard ended: what stays of it, and what the next start makes of it."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from parallelsearch.errors import DataError, TrainingError
from parallelsearch.files import read_json
from parallelsearch.runs.checkpoints import Checkpoints
from parallelsearch.runs.run_folder import policy_folder, start_run
from parallelsearch.training.process.guard import Verdict
from parallelsearch.training.verl.failed_run import FAILED, LAST_GOOD, clear_failure, end_run, export_last

DIVERGED = Verdict("diverged", "actor/grad_norm is nan at step 2", 2, 2, {"actor/grad_norm": math.nan})
OUTAGE = Verdict("infrastructure", "6 of the 10 episodes of step 2 were lost", 2, 2, {"lost": 6, "episodes": 10})
CONFIG = {"reward": {"lambda_d": 0.15}, "seed": 0}


@pytest.fixture
def run(written_by_verl: Path, tmp_path: Path) -> Path:
    """A run of two steps with a checkpoint of each."""
    folder = tmp_path / "seed0"
    start_run(folder, CONFIG)
    shutil.copytree(written_by_verl / "whole", folder / "checkpoints")
    return folder


def checkpoints_of(run: Path) -> Checkpoints:
    return Checkpoints(run / "checkpoints", ranks=2, critic=True)


def test_the_last_checkpoint_before_the_trouble_is_kept_and_exported(run: Path) -> None:
    error = end_run(run, checkpoints_of(run), DIVERGED)
    assert str(error) == (
        f"{run}: actor/grad_norm is nan at step 2; {run / LAST_GOOD} is the policy of step 1; change the arm's"
        " settings, or widen training.guard where the run was healthy."
    )
    assert checkpoints_of(run).complete == [1] and checkpoints_of(run).marked == 1
    exported = AutoModelForCausalLM.from_pretrained(run / LAST_GOOD, dtype=torch.float32)
    assert all(torch.isfinite(tensor).all() for tensor in exported.parameters())
    assert json.loads((run / FAILED).read_text(), parse_constant=pytest.fail) == {  # no NaN: it is not JSON
        "kind": "diverged",
        "reason": "actor/grad_norm is nan at step 2",
        "step": 2,
        "first_bad_step": 2,
        "values": {"actor/grad_norm": "nan"},
        "last_good_step": 1,
        "policy": LAST_GOOD,
    }
    assert not (run / "done.json").exists()
    with pytest.raises(DataError, match=r"done\.json is missing"):
        policy_folder(run)


def test_a_checkpoint_whose_weights_are_not_numbers_is_passed_over(run: Path) -> None:
    folder = run / "checkpoints" / "global_step_2" / "actor" / "huggingface"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        model.model.norm.weight[0] = math.nan
    model.save_pretrained(folder)
    end_run(run, checkpoints_of(run), Verdict("diverged", "entropy is nan at step 3", 3, 3, {"entropy": math.nan}))
    assert read_json(run / FAILED)["last_good_step"] == 1
    assert checkpoints_of(run).complete == [1] and (run / LAST_GOOD / "model.safetensors").exists()


def test_where_no_checkpoint_was_saved_before_the_trouble_there_is_no_policy(run: Path) -> None:
    error = end_run(run, checkpoints_of(run), Verdict("diverged", "it broke", 2, 1, {}))
    assert "no checkpoint was saved before that" in str(error)
    assert read_json(run / FAILED)["policy"] is None
    assert not (run / LAST_GOOD).exists() and checkpoints_of(run).complete == []


def test_a_last_checkpoint_of_which_no_policy_can_be_made_is_made_once_more(run: Path) -> None:
    """The copy in Hugging Face layout carries no checksums; it is compared with the shards when it is exported."""
    weights = checkpoints_of(run).policy(2) / "huggingface" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-3] ^= 0x40  # an exponent
    weights.write_bytes(content)
    with pytest.raises(TrainingError, match=r"That checkpoint is removed: the same command goes on from step 1\.$"):
        export_last(checkpoints_of(run), 2, run / "policy")
    assert not (run / "policy").exists()
    assert checkpoints_of(run).complete == [1] and checkpoints_of(run).marked == 1
    export_last(checkpoints_of(run), 1, run / "policy")
    assert (run / "policy" / "model.safetensors").exists()


def test_a_diverged_run_is_not_gone_on_with_unless_it_is_forced(run: Path) -> None:
    end_run(run, checkpoints_of(run), DIVERGED)
    start_run(run, CONFIG)
    with pytest.raises(TrainingError) as refused:
        clear_failure(run)
    sentence = str(refused.value)
    assert "failed.json: the run was ended because actor/grad_norm is nan at step 2" in sentence
    assert f"delete {run} to train anew, or go on with --force from step 1." in sentence
    assert (run / FAILED).exists()
    clear_failure(run, force=True)
    assert not (run / FAILED).exists() and checkpoints_of(run).clean() == 1


def test_after_an_outage_the_same_command_goes_on(run: Path) -> None:
    error = end_run(run, checkpoints_of(run), OUTAGE)
    assert str(error).endswith("repair it and start the same command again, which goes on from there.")
    clear_failure(run)
    assert not (run / FAILED).exists() and checkpoints_of(run).latest == 1


@pytest.mark.parametrize("change", ["reward", "seed", "inputs"])
def test_with_other_settings_seed_or_inputs_the_failed_run_is_set_aside(run: Path, change: str) -> None:
    end_run(run, checkpoints_of(run), DIVERGED)
    other = {"reward": {"lambda_d": 0.35}, "seed": 1, "inputs": {"policy": "1" * 64}}
    start_run(run, CONFIG | {change: other[change]})
    clear_failure(run)
    assert list(run.iterdir()) == [run / "config.yaml"]
    aside = next(run.parent.glob("seed0.superseded-*"))
    assert (aside / FAILED).exists() and (aside / "checkpoints").exists()


def test_a_run_that_did_not_fail_needs_no_force(run: Path) -> None:
    clear_failure(run)
    assert checkpoints_of(run).latest == 2
