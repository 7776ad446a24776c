"""The warm start: it learns, and a killed one ends with the very weights of one that ran through."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from parallelsearch.config import AgentConfig, PolicyConfig, WarmStartConfig
from parallelsearch.geoworld.facts import World, load_world, split_countries
from parallelsearch.runs.run_folder import read_metrics
from parallelsearch.training.warm_start import warm_start as module
from parallelsearch.training.warm_start.supervised import SupervisedSteps
from parallelsearch.training.warm_start.warm_start import warm_start

POLICY = PolicyConfig(vocabulary=420, hidden_size=32, layers=1, heads=2)
STEPS = 8


@pytest.fixture(scope="module")
def world() -> World:
    whole = load_world(400)
    return whole.restricted_to(split_countries(whole, 0)["train"])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOKENIZER_DEMONSTRATIONS", 200)
    monkeypatch.setattr(module, "CHECKPOINT_EVERY", 2)
    monkeypatch.setattr(module, "LOG_EVERY", 1)


def run(folder, world: World, steps: int = STEPS):
    config = WarmStartConfig(steps=steps, batch_size=4)
    return warm_start(folder, world, AgentConfig(prompt="short", top_k=1), POLICY, config, seed=5)


def weights(folder) -> dict[str, torch.Tensor]:
    return AutoModelForCausalLM.from_pretrained(folder / "policy").state_dict()


def test_a_killed_warm_start_ends_with_the_weights_of_one_that_ran_through(world, tmp_path, monkeypatch) -> None:
    through = run(tmp_path / "through", world)

    take, calls = SupervisedSteps.take, []

    def killed_in_step_six(*arguments, **settings):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return take(*arguments, **settings)

    monkeypatch.setattr(SupervisedSteps, "take", killed_in_step_six)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "killed", world)
    assert not (tmp_path / "killed" / "policy").exists()
    monkeypatch.setattr(SupervisedSteps, "take", take)
    resumed = run(tmp_path / "killed", world)

    assert [row["step"] for row in read_metrics(tmp_path / "killed" / "metrics.jsonl")] == list(range(1, STEPS + 1))
    assert resumed["loss"] == pytest.approx(through["loss"], abs=1e-6)
    expected = weights(tmp_path / "through")
    for name, tensor in weights(tmp_path / "killed").items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-6)


def test_the_loss_falls(world, tmp_path) -> None:
    run(tmp_path / "run", world, steps=150)
    losses = [row["loss"] for row in read_metrics(tmp_path / "run" / "metrics.jsonl")]
    assert sum(losses[-5:]) / 5 < 0.8 * losses[0]
    assert not (tmp_path / "run" / "checkpoint.pt").exists()
