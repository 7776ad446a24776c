"""An arm's settings as a veRL configuration: Hydra overrides that veRL composes and validates.

The same function makes the laptop's job (CPU platform, Hugging Face rollouts) and the cluster's (FSDP, vLLM). Names on
the right are veRL 0.9.1's; the paper's values live in config/paper.yaml.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parallelsearch.config import ArmConfig, TrainingConfig
from parallelsearch.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

AGENT_NAME = "parallelsearch"
ADVANTAGES = "parallelsearch.training.verl.advantages"  # a module that veRL imports: it registers GRPO
GRPO = "grpo_of_finished_episodes"
LOGICAL_CPUS = 16  # what veRL's worker bundles ask Ray for; on a small machine they are shared
OBJECT_STORE_BYTES = 500_000_000
FP32 = "{param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}"


@dataclass(frozen=True, slots=True)
class JobFiles:
    """Files of one job; all paths absolute, since Ray's workers have another working directory."""

    policy: str
    train_data: Path
    validation_data: Path
    agent_loops: Path
    checkpoints: Path


def overrides(arm: ArmConfig, files: JobFiles, seed: int) -> list[str]:
    """Hydra overrides of one training job."""
    training = arm.training
    settings: dict[str, Any] = {
        **_data(arm, files, seed),
        **_algorithm(training),
        **_actor(training, files.policy),
        **_rollout(arm, files, seed),
        **_trainer(arm, files),
    }
    if training.algorithm == "ppo":
        settings |= _critic(training, files.policy)
    settings |= _cpu(training) if training.device == "cpu" else _cuda(training)
    if training.nodes == 1:  # not a cluster that somebody else started on this machine
        settings["+ray_kwargs.ray_init.address"] = "local"
    return [f"{key}={hydra_value(value)}" for key, value in settings.items()]


def compose(arguments: list[str]) -> DictConfig:
    """veRL's configuration with these overrides, through veRL's own Hydra files, validation and typed sections."""

    def validate(config: DictConfig) -> list[DictConfig]:
        from verl.trainer.ppo.utils import need_critic, need_reference_policy
        from verl.utils.config import validate_config

        validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
        sections = [config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout]
        return [*sections, config.critic] if need_critic(config) else sections

    return composed("ppo_trainer", arguments, validate)


def composed(name: str, arguments: list[str], sections: Callable[[DictConfig], list[DictConfig]]) -> DictConfig:
    """veRL's Hydra configuration `name` with these overrides; `sections` names those that have a type.

    ConfigError where veRL refuses it.
    """
    import verl.trainer
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from verl.utils.config import omega_conf_to_dataclass

    folder = Path(verl.trainer.__file__).parent / "config"
    try:
        with initialize_config_dir(config_dir=str(folder), version_base=None):
            config = hydra_compose(name, overrides=arguments)
        for section in sections(config):
            omega_conf_to_dataclass(section)
    except (HydraException, AssertionError, ValueError, TypeError) as error:
        sentence = " ".join(str(error).split())
        raise ConfigError(f"veRL refuses the training configuration: {sentence}; change the arm's overlay.") from error
    return config


def _data(arm: ArmConfig, files: JobFiles, seed: int) -> dict[str, Any]:
    return {
        "data.train_files": files.train_data,
        "data.val_files": files.validation_data,
        "data.train_batch_size": arm.training.batch_size,
        "data.max_prompt_length": arm.agent.max_prompt_tokens,
        "data.max_response_length": arm.agent.max_response_tokens,
        "data.return_raw_chat": True,
        "data.filter_overlong_prompts": False,
        "data.shuffle": True,
        "data.seed": seed,
    }


def _algorithm(training: TrainingConfig) -> dict[str, Any]:
    ppo = training.algorithm == "ppo"
    settings = {
        "algorithm.adv_estimator": "gae" if ppo else GRPO,
        "algorithm.gamma": training.gamma,
        "algorithm.lam": training.gae_lambda,
        "algorithm.use_kl_in_reward": ppo and training.kl_coefficient > 0,
        "algorithm.kl_penalty": "kl",
        "algorithm.kl_ctrl.kl_coef": training.kl_coefficient,
        # The loss takes the rollout's own log-probabilities as the old ones: one forward pass less a step.
        # Retrieved text has none: where it is trained on, that pass is made.
        "algorithm.rollout_correction.bypass_mode": training.device == "cpu" and training.mask_observations,
    }
    return settings


def _actor(training: TrainingConfig, policy: str) -> dict[str, Any]:
    actor = "actor_rollout_ref.actor"
    grpo_kl = training.algorithm == "grpo" and training.kl_coefficient > 0
    return {
        "actor_rollout_ref.model.path": policy,
        f"{actor}.ppo_mini_batch_size": training.mini_batch_size,
        f"{actor}.ppo_micro_batch_size_per_gpu": per_rank(training),
        f"{actor}.ppo_epochs": 1,
        f"{actor}.optim.lr": training.actor_learning_rate,
        f"{actor}.optim.lr_warmup_steps_ratio": training.actor_warmup_ratio,
        f"{actor}.clip_ratio": training.clip_ratio,
        f"{actor}.entropy_coeff": training.entropy_coefficient,
        f"{actor}.grad_clip": 1.0,
        f"{actor}.use_kl_loss": grpo_kl,
        f"{actor}.kl_loss_coef": training.kl_coefficient,
        f"{actor}.kl_loss_type": "low_var_kl",
        f"{actor}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": per_rank(training),
    }


def _critic(training: TrainingConfig, policy: str) -> dict[str, Any]:
    return {
        "critic.model.path": policy,
        "critic.ppo_mini_batch_size": training.mini_batch_size,
        "critic.ppo_micro_batch_size_per_gpu": per_rank(training),
        "critic.optim.lr": training.critic_learning_rate,
        "critic.optim.lr_warmup_steps_ratio": training.critic_warmup_ratio,
        "critic.cliprange_value": training.value_clip,
        "critic.grad_clip": 1.0,
    }


def _rollout(arm: ArmConfig, files: JobFiles, seed: int) -> dict[str, Any]:
    training, rollout = arm.training, "actor_rollout_ref.rollout"
    return {
        f"{rollout}.name": training.rollout_engine,
        f"{rollout}.mode": "async",
        f"{rollout}.n": training.rollouts_per_prompt,
        f"{rollout}.temperature": training.temperature,
        f"{rollout}.top_p": training.top_p,
        f"{rollout}.calculate_log_probs": training.mask_observations,
        f"{rollout}.seed": seed,
        f"{rollout}.tensor_model_parallel_size": 1,
        f"{rollout}.log_prob_micro_batch_size_per_gpu": per_rank(training),
        f"{rollout}.max_model_len": arm.agent.max_prompt_tokens + arm.agent.max_response_tokens,
        f"{rollout}.agent.default_agent_loop": AGENT_NAME,
        f"{rollout}.agent.agent_loop_config_path": files.agent_loops,
        f"{rollout}.val_kwargs.n": 1,
        f"{rollout}.val_kwargs.do_sample": False,
        f"{rollout}.val_kwargs.temperature": 0,
    }


def _trainer(arm: ArmConfig, files: JobFiles) -> dict[str, Any]:
    training = arm.training
    return {
        "trainer.project_name": AGENT_NAME,
        "trainer.experiment_name": arm.name,
        "trainer.logger": ["console", "file"],
        "trainer.nnodes": training.nodes,
        "trainer.n_gpus_per_node": training.gpus_per_node,
        "trainer.total_training_steps": training.steps,
        "trainer.total_epochs": 1000,  # total_training_steps ends the job
        "trainer.save_freq": training.save_every,
        "trainer.test_freq": -1,  # policies are evaluated by a stage of their own
        "trainer.val_before_train": False,
        "trainer.resume_mode": "auto",
        "trainer.default_local_dir": files.checkpoints,
        "trainer.checkpoint_callback_class": "parallelsearch.training.verl.stop.StopWhenAsked",
    }


def _cuda(training: TrainingConfig) -> dict[str, Any]:
    offload = training.offload
    settings: dict[str, Any] = {
        "actor_rollout_ref.model.use_remove_padding": True,
        "actor_rollout_ref.model.enable_gradient_checkpointing": True,
        "actor_rollout_ref.rollout.gpu_memory_utilization": training.gpu_memory_utilization,
        "actor_rollout_ref.actor.fsdp_config.param_offload": offload,
        "actor_rollout_ref.actor.fsdp_config.optimizer_offload": offload,
        "actor_rollout_ref.ref.fsdp_config.param_offload": offload,
    }
    if training.algorithm == "ppo":
        settings |= {
            "critic.model.use_remove_padding": True,
            "critic.model.enable_gradient_checkpointing": True,
            "critic.fsdp.param_offload": offload,
            "critic.fsdp.optimizer_offload": offload,
        }
    return settings


def _cpu(training: TrainingConfig) -> dict[str, Any]:
    ranks = training.gpus_per_node
    settings: dict[str, Any] = {
        "trainer.device": "cpu",
        "trainer.balance_batch": False,
        "trainer.v1.sampler.custom_sampler.path": Path(__file__).parent / "cpu" / "replay.py",
        "trainer.v1.sampler.custom_sampler.name": "FrequentReplayBuffer",
        "data.dataloader_num_workers": 0,
        "actor_rollout_ref.model.use_remove_padding": False,
        "actor_rollout_ref.model.enable_gradient_checkpointing": False,
        "+actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
        "actor_rollout_ref.rollout.load_format": "auto",
        "actor_rollout_ref.rollout.free_cache_engine": False,
        "actor_rollout_ref.rollout.dtype": "float32",
        "actor_rollout_ref.rollout.max_num_seqs": 128,
        "actor_rollout_ref.rollout.agent.num_workers": 1,
        "reward.num_workers": 1,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
    }
    if training.nodes == 1:  # on several, Ray runs already (ray_cluster.py) and takes no such settings
        settings |= {
            "ray_kwargs.ray_init.num_cpus": LOGICAL_CPUS,
            "+ray_kwargs.ray_init.num_gpus": ranks,
            "+ray_kwargs.ray_init.include_dashboard": False,
            "+ray_kwargs.ray_init.object_store_memory": OBJECT_STORE_BYTES,
        }
    engines = {"actor_rollout_ref.actor": "fsdp_config", "actor_rollout_ref.ref": "fsdp_config"}
    if training.algorithm == "ppo":
        engines["critic"] = "fsdp"
        settings |= {
            "critic.model.use_remove_padding": False,
            "critic.model.enable_gradient_checkpointing": False,
            "+critic.model.override_config.attn_implementation": "sdpa",
        }
    for worker, fsdp in engines.items():
        settings |= {
            f"{worker}.strategy": "fsdp2",
            f"{worker}.{fsdp}.strategy": "fsdp2",
            f"{worker}.{fsdp}.use_torch_compile": False,
            f"+{worker}.{fsdp}.mixed_precision": FP32,
        }
    settings |= {f"{worker}.use_torch_compile": False for worker in engines if worker != "critic"}
    return settings


def per_rank(training: TrainingConfig) -> int:
    """Rows of a forward pass on one rank; a ConfigError where the ranks cannot share them evenly."""
    ranks = training.nodes * training.gpus_per_node
    if training.micro_batch_size % ranks:
        raise ConfigError(
            f"training.micro_batch_size is {training.micro_batch_size}, which {ranks} ranks cannot share evenly;"
            f" choose a multiple of {ranks}."
        )
    return training.micro_batch_size // ranks


def hydra_value(value: Any) -> str:
    r"""`value` as the right side of a Hydra override. Text comes out as it is: ${oc.env:NAME} is not looked up.

    OmegaConf leaves `\${` alone, and halves the backslashes before it; Hydra halves those before a quote.
    """
    if value == FP32:
        return FP32
    if isinstance(value, bool | list):
        return json.dumps(value)
    if isinstance(value, int | float):
        return str(value)
    text = re.sub(r"(\\*)\$\{", lambda found: f"{found[1] * 2}\\${{", str(value))
    text = re.sub(r"(\\*)(?:'|\Z)", lambda found: found[1] * 2 + ("\\'" if found[0].endswith("'") else ""), text)
    return f"'{text}'"
