"""The supervised arms' configurations, composed and validated by veRL itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from parallelsearch.config import ArmConfig
from parallelsearch.config_files import load_arm, load_study
from parallelsearch.errors import ConfigError
from parallelsearch.training.verl.sft_config import compose_sft, sft_overrides
from parallelsearch.training.warm_start.policy import build_policy, save_policy, train_tokenizer

CONFIG = Path(__file__).resolve().parents[3] / "config"
STUDIES = {
    "laptop": load_study(config_dir=CONFIG),
    "smoke": load_study(CONFIG / "smoke.yaml", config_dir=CONFIG),
    "paper": load_study(CONFIG / "paper.yaml", config_dir=CONFIG),
}
ARMS = ("sft", "rejection-sampling")


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """veRL reads the model's configuration while it validates its section."""
    folder = tmp_path_factory.mktemp("policy")
    tokenizer = train_tokenizer(["Which city is larger?"] * 3, 320)
    small = STUDIES["laptop"].policy.model_copy(update={"hidden_size": 16, "layers": 1, "heads": 2})
    save_policy(build_policy(small, tokenizer, 0), tokenizer, folder)
    return str(folder)


def arguments(arm: ArmConfig, policy: str) -> list[str]:
    return sft_overrides(arm, policy, Path("/data/train.parquet"), Path("/data/checkpoints"))


@pytest.mark.parametrize("name", ARMS)
@pytest.mark.parametrize("study", STUDIES)
def test_verl_accepts_the_supervised_arms_of_every_study(study: str, name: str, policy: str) -> None:
    arm = load_arm(STUDIES[study], name, CONFIG)
    config = compose_sft(arguments(arm, policy))
    assert config.data.train_batch_size == arm.training.batch_size
    assert config.trainer.total_training_steps == arm.training.steps
    assert config.trainer.device == arm.training.device
    assert config.optim.lr == arm.training.sft_learning_rate
    assert config.data.max_length == arm.agent.max_prompt_tokens + arm.agent.max_response_tokens


# Nothing of this is published; where each value is from.
PAPER = {
    "data.train_batch_size": (512, "as the other arms"),
    "data.micro_batch_size_per_gpu": (8, "micro-batch 64 over 8 GPUs, as the other arms"),
    "trainer.total_training_steps": (500, "as the other arms"),
    "optim.lr": (1e-5, "veRL's sft_trainer.yaml"),
    "optim.betas": ([0.9, 0.95], "veRL's sft_trainer.yaml"),
    "optim.weight_decay": (0.01, "veRL's sft_trainer.yaml"),
    "optim.lr_warmup_steps_ratio": (0.1, "veRL's sft_trainer.yaml"),
    "optim.lr_scheduler_type": ("cosine", "veRL's sft_trainer.yaml"),
    "optim.clip_grad": (1.0, "veRL's sft_trainer.yaml"),
    "data.max_length": (4096, "512 + 3,584 tokens of an episode"),
    "data.custom_cls.name": ("TokenRowDataset", "token ids, never text"),
    "model.use_remove_padding": (True, "as the other arms"),
    "engine.param_offload": (True, "FSDP with CPU offload"),
    "trainer.n_gpus_per_node": (8, "8 H100"),
}


@pytest.fixture(scope="module")
def paper_configuration(policy: str) -> DictConfig:
    return compose_sft(arguments(load_arm(STUDIES["paper"], "rejection-sampling", CONFIG), policy))


@pytest.mark.parametrize("key", PAPER)
def test_the_values_of_the_papers_study(key: str, paper_configuration: DictConfig) -> None:
    expected, source = PAPER[key]
    assert OmegaConf.select(paper_configuration, key) == expected, source


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"nodes": 2}, "training.nodes is 2, but sft runs on one node"),
        ({"micro_batch_size": 36}, "training.batch_size is 96, which is no multiple of .* 36"),
        ({"gpus_per_node": 3}, "micro_batch_size is 16, which 3 ranks cannot share evenly"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_sentence(changes: dict, sentence: str, policy: str) -> None:
    arm = load_arm(STUDIES["laptop"], "sft", CONFIG)
    changed = arm.model_copy(update={"training": arm.training.model_copy(update=changes)})
    with pytest.raises(ConfigError, match=sentence):
        arguments(changed, policy)


def test_what_verl_refuses_is_told_in_one_sentence(policy: str) -> None:
    arm = load_arm(STUDIES["laptop"], "sft", CONFIG)
    with pytest.raises(ConfigError, match=r"veRL refuses the training configuration: .*no_such_key"):
        compose_sft([*arguments(arm, policy), "trainer.no_such_key=1"])
