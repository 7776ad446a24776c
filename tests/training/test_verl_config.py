"""Every arm's veRL configuration, composed and validated by veRL itself; the paper's values against its own text."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from parallelsearch.config import SUPERVISED, ArmConfig, StudyConfig
from parallelsearch.config_files import load_arm, load_study
from parallelsearch.errors import ConfigError
from parallelsearch.training.policy import build_policy, save_policy, train_tokenizer
from parallelsearch.training.verl_config import JobFiles, compose, overrides

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config"
STUDIES = {
    "laptop": load_study(config_dir=CONFIG),
    "smoke": load_study(CONFIG / "smoke.yaml", config_dir=CONFIG),
    "paper": load_study(CONFIG / "paper.yaml", config_dir=CONFIG),
}
CELLS = [
    (study, arm)
    for study, settings in STUDIES.items()
    for arm in settings.arms
    if load_arm(settings, arm, CONFIG).training.algorithm not in SUPERVISED  # those: test_verl_sft_config.py
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> JobFiles:
    """Paths of a job. The policy is a real one, since veRL reads it while it validates the critic."""
    folder = tmp_path_factory.mktemp("policy")
    tokenizer = train_tokenizer(["Which city is larger?"] * 3, 320)
    small = STUDIES["laptop"].policy.model_copy(update={"hidden_size": 16, "layers": 1, "heads": 2})
    save_policy(build_policy(small, tokenizer, 0), tokenizer, folder)
    return JobFiles(
        policy=str(folder),
        train_data=Path("/data/train.parquet"),
        validation_data=Path("/data/validation.parquet"),
        agent_loops=Path("/data/agent_loops.yaml"),
        checkpoints=Path("/data/checkpoints"),
    )


def arm_of(study: str, name: str) -> ArmConfig:
    settings: StudyConfig = STUDIES[study]
    return load_arm(settings, name, CONFIG)


@pytest.mark.parametrize(("study", "name"), CELLS)
def test_verl_accepts_every_arm(study: str, name: str, files: JobFiles) -> None:
    arm = arm_of(study, name)
    config = compose(overrides(arm, files, seed=7))
    assert config.data.train_batch_size == arm.training.batch_size
    assert config.trainer.total_training_steps == arm.training.steps
    assert config.actor_rollout_ref.rollout.name == arm.training.rollout_engine
    assert config.trainer.device == arm.training.device
    assert config.data.seed == 7


# Value, and where the paper states it: appendix A.4 unless another place is named.
PAPER = {
    "algorithm.adv_estimator": ("gae", "PPO with GAE"),
    "algorithm.gamma": (1.0, "GAE lambda = gamma = 1"),
    "algorithm.lam": (1.0, "GAE lambda = gamma = 1"),
    "algorithm.use_kl_in_reward": (True, "published training script: KL in the reward"),
    "algorithm.kl_ctrl.kl_coef": (0.001, "KL beta .001"),
    "actor_rollout_ref.actor.optim.lr": (1e-6, "actor lr 1e-6"),
    "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio": (0.285, "warm-up ratio .285"),
    "critic.optim.lr": (1e-5, "critic lr 1e-5"),
    "critic.optim.lr_warmup_steps_ratio": (0.015, "warm-up ratio .015"),
    "critic.cliprange_value": (0.5, "published training script"),
    "data.train_batch_size": (512, "batch 512"),
    "actor_rollout_ref.actor.ppo_mini_batch_size": (256, "mini-batch 256"),
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": (8, "micro-batch 64 over 8 GPUs"),
    "actor_rollout_ref.actor.clip_ratio": (0.2, "clip .2"),
    "actor_rollout_ref.actor.ppo_epochs": (1, "published training script"),
    "actor_rollout_ref.actor.grad_clip": (1.0, "published training script"),
    "actor_rollout_ref.rollout.temperature": (1.0, "T = 1.0"),
    "actor_rollout_ref.rollout.top_p": (1.0, "top_p 1.0"),
    "actor_rollout_ref.rollout.gpu_memory_utilization": (0.6, "vLLM memory .6"),
    "actor_rollout_ref.rollout.tensor_model_parallel_size": (1, "vLLM TP 1"),
    "actor_rollout_ref.rollout.name": ("vllm", "vLLM"),
    "actor_rollout_ref.actor.fsdp_config.param_offload": (True, "FSDP with CPU offload"),
    "trainer.total_training_steps": (500, "500 steps"),
    "trainer.n_gpus_per_node": (8, "8 H100"),
}


@pytest.fixture(scope="module")
def paper_configuration(files: JobFiles) -> DictConfig:
    return compose(overrides(arm_of("paper", "parallelsearch"), files, seed=0))


@pytest.mark.parametrize("key", PAPER)
def test_the_papers_hyperparameters(key: str, paper_configuration: DictConfig) -> None:
    expected, source = PAPER[key]
    assert OmegaConf.select(paper_configuration, key) == expected, source


def test_the_papers_agent_and_reward() -> None:
    arm = arm_of("paper", "parallelsearch")
    assert (arm.reward.lambda_d, arm.reward.lambda_s) == (0.15, 0.35)  # Table 4's best cell
    assert (arm.reward.lambda_f, arm.reward.alpha) == (0.1, 3.0)  # published code
    assert arm.agent.top_k == 3
    assert arm.agent.max_search_turns == 4
    assert arm.agent.max_generation_tokens == 500  # max response 500
    assert arm.agent.prompt == "parallel"
    assert arm_of("paper", "search-r1-original-prompt").agent.prompt == "search_r1"


@pytest.mark.parametrize("study", STUDIES)
def test_retrieved_text_that_is_trained_on_gets_its_log_probabilities_from_the_actor(
    study: str, files: JobFiles
) -> None:
    """The rollout has none of it: they would enter the loss as probability 1."""
    config = compose(overrides(arm_of(study, "no-observation-mask"), files, seed=0))
    assert config.actor_rollout_ref.rollout.calculate_log_probs is False
    assert config.algorithm.rollout_correction.bypass_mode is False


def test_an_impossible_configuration_is_refused_in_one_sentence(files: JobFiles) -> None:
    arm = arm_of("laptop", "parallelsearch")
    training = arm.training.model_copy(update={"micro_batch_size": 7, "gpus_per_node": 2})
    with pytest.raises(ConfigError, match="micro_batch_size is 7, which 2 ranks cannot share evenly"):
        overrides(arm.model_copy(update={"training": training}), files, seed=0)
    with pytest.raises(ConfigError, match=r"veRL refuses the training configuration: .*no_such_key"):
        compose([*overrides(arm, files, seed=0), "trainer.no_such_key=1"])
