"""Every arm's veRL configuration, composed and validated by veRL itself; the paper's values against its own text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf

from parallelsearch.config import SUPERVISED, ArmConfig, StudyConfig
from parallelsearch.config_files import arm_names, load_arm, load_study, read_yaml
from parallelsearch.errors import ConfigError
from parallelsearch.training.verl.config import JobFiles, compose, hydra_value, overrides
from parallelsearch.training.verl.job import job_environment
from parallelsearch.training.warm_start.policy import build_policy, save_policy, train_tokenizer

ROOT = Path(__file__).resolve().parents[3]
CONFIG = ROOT / "config"
STUDIES = {
    "laptop": load_study(config_dir=CONFIG),
    "smoke": load_study(CONFIG / "smoke.yaml", config_dir=CONFIG),
    "paper": load_study(CONFIG / "paper.yaml", config_dir=CONFIG),
}
LISTED = {(study, arm) for study, settings in STUDIES.items() for arm in settings.arms}
# Every overlay that is trained, on the paper's GPUs, and each study's own arms.
CELLS = [
    (study, arm)
    for study, settings in STUDIES.items()
    for arm in arm_names(CONFIG)
    if (study == "paper" or (study, arm) in LISTED)
    and (training := load_arm(settings, arm, CONFIG).training).steps
    and training.algorithm not in SUPERVISED  # those: test_verl_sft_config.py
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


# veRL's key -> value, and where it is stated: a section of the paper (arXiv 2508.09303), or the script that its authors
# published (train_parallelsearch.sh), where the paper says nothing.
PAPER = {
    "algorithm.adv_estimator": ("gae", "appendix A.4: PPO with GAE"),
    "algorithm.gamma": (1.0, "A.4: GAE lambda = gamma = 1"),
    "algorithm.lam": (1.0, "A.4: GAE lambda = gamma = 1"),
    "algorithm.use_kl_in_reward": (True, "script: KL in the reward"),
    "algorithm.kl_penalty": ("kl", "script: k1"),
    "algorithm.kl_ctrl.type": ("fixed", "script: kl_coef .001 fixed"),
    "algorithm.kl_ctrl.kl_coef": (0.001, "A.4: KL beta .001"),
    "actor_rollout_ref.actor.use_kl_loss": (False, "script: no KL loss with PPO"),
    "actor_rollout_ref.actor.optim.lr": (1e-6, "A.4: actor lr 1e-6"),
    "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio": (0.285, "A.4: warm-up ratio .285"),
    "actor_rollout_ref.actor.optim.lr_scheduler_type": ("constant", "script: constant after warm-up"),
    "actor_rollout_ref.actor.entropy_coeff": (0.001, "script: default of its configuration"),
    "critic.optim.lr": (1e-5, "A.4: critic lr 1e-5"),
    "critic.optim.lr_warmup_steps_ratio": (0.015, "A.4: warm-up ratio .015"),
    "critic.cliprange_value": (0.5, "script"),
    "critic.ppo_mini_batch_size": (256, "A.4: mini-batch 256"),
    "data.train_batch_size": (512, "A.4: batch 512"),
    "actor_rollout_ref.actor.ppo_mini_batch_size": (256, "A.4: mini-batch 256"),
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": (8, "A.4: micro-batch 64, over 8 GPUs"),
    "actor_rollout_ref.actor.clip_ratio": (0.2, "A.4: clip .2"),
    "actor_rollout_ref.actor.ppo_epochs": (1, "script"),
    "actor_rollout_ref.actor.grad_clip": (1.0, "script"),
    "actor_rollout_ref.rollout.n": (1, "script: n_agent 1"),
    "actor_rollout_ref.rollout.temperature": (1.0, "A.4: T = 1.0"),
    "actor_rollout_ref.rollout.top_p": (1.0, "A.4: top_p 1.0"),
    "actor_rollout_ref.rollout.gpu_memory_utilization": (0.6, "A.4: vLLM memory .6"),
    "actor_rollout_ref.rollout.tensor_model_parallel_size": (1, "A.4: vLLM TP 1"),
    "actor_rollout_ref.rollout.name": ("vllm", "A.4: vLLM"),
    "actor_rollout_ref.rollout.max_model_len": (4096, "A.4: sequences of at most 4096 tokens"),
    "actor_rollout_ref.actor.fsdp_config.param_offload": (True, "A.4: FSDP with CPU offload"),
    "actor_rollout_ref.actor.fsdp_config.optimizer_offload": (True, "A.4: FSDP with CPU offload"),
    "trainer.total_training_steps": (500, "A.4: 500 steps"),
    "trainer.save_freq": (100, "script: a checkpoint every 100 steps"),
    "trainer.n_gpus_per_node": (8, "A.4: 8 H100"),
    "trainer.nnodes": (1, "A.4: 8 H100"),
}

# The settings of Search-R1's GRPO (arXiv 2503.09516), which the arms with GRPO take over: 5 samples, KL loss .001
# (low_var_kl), no critic.
GRPO = {
    "algorithm.adv_estimator": "grpo_of_finished_episodes",
    "algorithm.use_kl_in_reward": False,
    "actor_rollout_ref.actor.use_kl_loss": True,
    "actor_rollout_ref.actor.kl_loss_coef": 0.001,
    "actor_rollout_ref.actor.kl_loss_type": "low_var_kl",
    "actor_rollout_ref.rollout.n": 5,
    "algorithm.norm_adv_by_std_in_grpo": True,
}


@pytest.fixture(scope="module")
def paper_configuration(files: JobFiles) -> DictConfig:
    return compose(overrides(arm_of("paper", "parallelsearch"), files, seed=0))


@pytest.mark.parametrize("key", PAPER)
def test_the_papers_hyperparameters(key: str, paper_configuration: DictConfig) -> None:
    expected, source = PAPER[key]
    assert OmegaConf.select(paper_configuration, key) == expected, source


def test_grpo_as_search_r1_publishes_it(files: JobFiles) -> None:
    """Over the paper's study; arms with GRPO of their own are held to the same."""
    arm = arm_of("paper", "search-r1")
    grpo = {"algorithm": "grpo", "rollouts_per_prompt": 5}
    arms = [arm.model_copy(update={"training": arm.training.model_copy(update=grpo)})]
    arms += [
        load_arm(STUDIES["paper"], name, CONFIG) for name in arm_names(CONFIG) if name.startswith("search-r1-grpo")
    ]
    for one in arms:
        config = compose(overrides(one, files, seed=0))
        assert {key: OmegaConf.select(config, key) for key in GRPO} == GRPO, one.name
        assert OmegaConf.select(config, "critic.enable") is not True


def test_the_papers_agent_and_reward() -> None:
    arm = arm_of("paper", "parallelsearch")
    assert (arm.reward.lambda_d, arm.reward.lambda_s) == (0.15, 0.35)  # Table 4's best cell
    assert (arm.reward.lambda_f, arm.reward.alpha) == (0.1, 3.0)  # script: structure_format_score, comp_score * 3
    assert arm.reward.semantics == "paper"  # section 3.3, equations 3 to 7
    assert arm.agent.top_k == 3  # section 4: top-3 of E5 and wiki-18
    assert arm.agent.max_search_turns == 4  # script: max_turns 4, and one more generation for the answer
    assert arm.agent.max_generation_tokens == 500  # A.4: max response 500
    assert arm.agent.max_sub_query_result_tokens == 500  # A.4: max retrieved 500
    assert arm.agent.prompt == "parallel"  # Table 1
    assert arm_of("paper", "search-r1-original-prompt").agent.prompt == "search_r1"
    assert arm.training.sets == ["nq.train", "hotpotqa.train"]  # section 4: NQ and HotpotQA
    assert STUDIES["paper"].policy.model == "Qwen/Qwen2.5-7B-Instruct"


BEST = {"lambda_d": 0.15, "lambda_s": 0.35, "lambda_f": 0.1, "alpha": 3.0, "top_k": 3}
GRID = {
    "parallelsearch": {},  # Table 4, the best cell
    "no-decomposition-reward": {"lambda_d": 0.0},  # Table 4
    "d0.35-s0.35": {"lambda_d": 0.35},
    "d0.50-s0.35": {"lambda_d": 0.5},
    "no-search-count-reward": {"lambda_s": 0.0},
    "d0.15-s0.15": {"lambda_s": 0.15},
    "d0.15-s0.50": {"lambda_s": 0.5},
    "alpha-1": {"alpha": 1.0},  # not varied in the paper
    "alpha-5": {"alpha": 5.0},
    "lambda-f-0": {"lambda_f": 0.0},  # not varied in the paper
    "lambda-f-0.2": {"lambda_f": 0.2},
    "top-k-1": {"top_k": 1},  # Figure 6
    "top-k-5": {"top_k": 5},
    "top-k-10": {"top_k": 10},
}


def test_each_cell_of_the_ablation_grid_differs_from_the_best_in_one_value() -> None:
    study = load_study(CONFIG / "paper.yaml", CONFIG / "ablations.yaml", config_dir=CONFIG)
    assert study.arms == list(GRID)
    assert (study.baseline, study.results) == ("parallelsearch", STUDIES["paper"].results)
    paper = load_arm(STUDIES["paper"], "parallelsearch", CONFIG)
    for name, changed in GRID.items():
        arm = load_arm(study, name, CONFIG)
        assert {key: getattr(arm.agent if key == "top_k" else arm.reward, key) for key in BEST} == BEST | changed, name
        assert arm.training == paper.training
        same = {"top_k", "max_sub_query_result_tokens"}
        assert arm.agent.model_dump(exclude=same) == paper.agent.model_dump(exclude=same)
    assert set(read_yaml(CONFIG / "ablations.yaml")) == {"arms", "baseline"}  # nothing else of the study changes


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


@settings(deadline=None, max_examples=300)
@given(st.text(alphabet="\\'${}a:\" ,=\n", max_size=9))
def test_any_text_comes_out_of_hydra_and_omegaconf_as_it_was(text: str) -> None:
    read = OverridesParser.create().parse_override(f"key={hydra_value(text)}").value()
    assert OmegaConf.create({"key": read}).key == text


def test_a_path_that_names_a_variable_of_the_environment_is_a_path(
    files: JobFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET", "s3cr3t-value")
    path = Path("/x/${oc.env:MY_SECRET}/it's")
    config = compose(
        overrides(load_arm(STUDIES["laptop"], "parallelsearch", CONFIG), replace(files, train_data=path), 0)
    )
    assert config.data.train_files == str(path)
    assert "s3cr3t" not in OmegaConf.to_yaml(config, resolve=True)
    assert config.actor_rollout_ref.model.trust_remote_code is False
    assert config.critic.model.trust_remote_code is False and config.data.trust_remote_code is False


def test_a_job_on_one_node_has_a_ray_of_its_own_that_asks_for_a_token(
    files: JobFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    arm = load_arm(STUDIES["laptop"], "parallelsearch", CONFIG)
    assert compose(overrides(arm, files, 0)).ray_kwargs.ray_init.address == "local"
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    first, second = (job_environment(arm, Path("/x")) for _ in range(2))
    assert first["RAY_AUTH_MODE"] == "token" and len(first["RAY_AUTH_TOKEN"]) == 64
    assert first["RAY_AUTH_TOKEN"] != second["RAY_AUTH_TOKEN"]
    many = arm.model_copy(update={"training": arm.training.model_copy(update={"nodes": 2})})
    assert "+ray_kwargs.ray_init.address='local'" not in overrides(many, files, 0)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")  # a cluster that somebody else started, as they started it
    assert "RAY_AUTH_TOKEN" not in job_environment(many, Path("/x"))
