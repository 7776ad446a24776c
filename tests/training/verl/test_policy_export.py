"""The exported policy against the checkpoint's own shards, as veRL writes them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from parallelsearch.errors import TrainingError
from parallelsearch.training.verl.policy_export import export_policy, merged_shards


@pytest.fixture
def actor(written_by_verl: Path, tmp_path: Path) -> Path:
    """The actor's checkpoint of a job of two ranks, one step of Adam away from the policy it started from."""
    shutil.copytree(written_by_verl / "whole" / "global_step_2" / "actor", tmp_path / "actor")
    return tmp_path / "actor"


def logits(folder: Path) -> torch.Tensor:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(torch.tensor([[5, 6, 7, 8]])).logits


def test_an_exported_policy_gives_the_checkpoints_logits(actor: Path, written_by_verl: Path, tmp_path: Path) -> None:
    export_policy(actor, tmp_path / "policy")
    torch.testing.assert_close(logits(tmp_path / "policy"), logits(actor / "huggingface"), rtol=0, atol=0)
    assert (logits(tmp_path / "policy") - logits(written_by_verl / "policy")).abs().max() > 1e-3  # it was trained
    assert json.loads((tmp_path / "policy" / "config.json").read_text())["dtype"] == "float32"


def test_the_ranks_parts_join_to_the_weights_that_verl_gathered(actor: Path) -> None:
    gathered = AutoModelForCausalLM.from_pretrained(actor / "huggingface", dtype=torch.float32).state_dict()
    merged = merged_shards(actor)
    assert set(gathered) - set(merged) <= {"lm_head.weight"}  # tied to the input embedding
    for name, tensor in merged.items():
        torch.testing.assert_close(tensor, gathered[name], rtol=0, atol=0)


def rewrite(folder: Path, change: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        if change == "not a number":
            model.model.norm.weight[0] = float("nan")
        elif change == "bfloat16":
            model = model.to(torch.bfloat16)
        else:
            model.model.layers[0].mlp.up_proj.weight[0] += 0.5
    model.save_pretrained(folder)


def test_weights_that_are_not_numbers_leave_no_policy(actor: Path, tmp_path: Path) -> None:
    rewrite(actor / "huggingface", "not a number")
    with pytest.raises(TrainingError, match="not finite numbers; the training diverged"):
        export_policy(actor, tmp_path / "policy")
    assert not (tmp_path / "policy").exists()


@pytest.mark.parametrize("change", ["bfloat16", "one row of one matrix"])
def test_weights_that_are_not_those_of_the_shards_leave_no_policy(actor: Path, tmp_path: Path, change: str) -> None:
    rewrite(actor / "huggingface", change)
    with pytest.raises(TrainingError, match=r"gives other logits than the checkpoint \(largest difference"):
        export_policy(actor, tmp_path / "policy")
    assert not (tmp_path / "policy").exists()


def test_a_checkpoint_without_weights_or_shards_is_refused(actor: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="holds no weights; delete the run's checkpoints"):
        export_policy(tmp_path, tmp_path / "policy")
    for path in actor.glob("model_*.pt"):
        path.unlink()
    with pytest.raises(TrainingError, match="holds no shards of weights; delete the run's checkpoints"):
        export_policy(actor, tmp_path / "policy")
