"""Where the policy that training starts from is found."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import save_file

from parallelsearch.errors import DataError, TrainingError
from parallelsearch.runs.local_policy import local_policy
from parallelsearch.runs.run_folder import finish_run


def test_a_models_folder_is_taken_as_it_is(tmp_path) -> None:
    (tmp_path / "config.json").write_text("{}")
    save_file({"weight": np.zeros(1)}, tmp_path / "model.safetensors")
    assert local_policy(str(tmp_path)) == str(tmp_path)


def test_a_finished_runs_folder_stands_for_its_policy(tmp_path) -> None:
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "config.json").write_text("{}")
    save_file({"weight": np.zeros(1)}, tmp_path / "policy" / "model.safetensors")
    with pytest.raises(DataError, match=r"done.json is missing"):
        local_policy(str(tmp_path))
    finish_run(tmp_path, {}, {})
    assert local_policy(str(tmp_path)) == str(tmp_path / "policy")


@pytest.mark.parametrize("name", ["Nobody/no-such-model", "Nobody/no-such-model@abc", "no/such/folder"])
def test_a_model_that_cannot_be_had_is_refused_in_one_sentence(name: str, monkeypatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(TrainingError, match=f"The policy '{name}' is neither a folder nor to be had"):
        local_policy(name)
