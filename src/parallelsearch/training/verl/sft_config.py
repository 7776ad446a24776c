"""An arm's settings as a configuration of veRL's SFT trainer, for the laptop (CPU) and the cluster (FSDP on GPUs).

Search-R1 publishes no hyperparameters of its supervised baselines. Steps and batch are the study's own, so that these
arms see as many demonstrations as the others see prompts; optimiser and schedule are those of veRL's
trainer/config/sft_trainer.yaml (AdamW, betas .9 and .95, weight decay .01, warm-up .1, cosine, clip 1).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from parallelsearch.config import ArmConfig
from parallelsearch.errors import ConfigError
from parallelsearch.training.verl.config import AGENT_NAME, FP32, composed, hydra_value, per_rank

if TYPE_CHECKING:
    from omegaconf import DictConfig

WARMUP_RATIO = 0.1
BETAS = [0.9, 0.95]
WEIGHT_DECAY = 0.01


def sft_overrides(arm: ArmConfig, policy: str, data: Path, checkpoints: Path) -> list[str]:
    """Hydra overrides of one job over the token rows in `data`; all paths absolute.

    Raises ConfigError where a batch cannot be shared between passes and ranks, or the job has several nodes.
    """
    training = arm.training
    if training.nodes > 1:
        raise ConfigError(
            f"training.nodes is {training.nodes}, but {training.algorithm} runs on one node; set it to 1."
        )
    if training.batch_size % training.micro_batch_size:
        raise ConfigError(
            f"training.batch_size is {training.batch_size}, which is no multiple of training.micro_batch_size ="
            f" {training.micro_batch_size}; choose one."
        )
    settings = {**_data(arm, data), **_optimiser(arm), **_trainer(arm, checkpoints), "model.path": policy}
    settings |= _cpu() if training.device == "cpu" else _cuda(training.offload)
    return [f"{key}={hydra_value(value)}" for key, value in settings.items()]


def compose_sft(arguments: list[str]) -> DictConfig:
    """veRL's SFT configuration with these overrides, through veRL's own Hydra files and typed sections."""
    return composed(
        "sft_trainer_engine",
        arguments,
        lambda config: [config.model, config.engine, config.optim, config.checkpoint, config.profiler],
    )


def _data(arm: ArmConfig, data: Path) -> dict[str, Any]:
    return {
        "data.train_files": data,
        "data.train_batch_size": arm.training.batch_size,
        "data.micro_batch_size_per_gpu": per_rank(arm.training),
        "data.use_dynamic_bsz": False,
        "data.max_length": arm.agent.max_prompt_tokens + arm.agent.max_response_tokens,
        "data.pad_mode": "no_padding",
        "data.num_workers": 0,
        "data.custom_cls.path": Path(__file__).with_name("sft_dataset.py"),
        "data.custom_cls.name": "TokenRowDataset",
    }


def _optimiser(arm: ArmConfig) -> dict[str, Any]:
    return {
        "optim.lr": arm.training.sft_learning_rate,
        "optim.lr_warmup_steps_ratio": WARMUP_RATIO,
        "optim.lr_scheduler_type": "cosine",
        "optim.betas": BETAS,
        "optim.weight_decay": WEIGHT_DECAY,
        "optim.clip_grad": 1.0,
    }


def _trainer(arm: ArmConfig, checkpoints: Path) -> dict[str, Any]:
    training = arm.training
    return {
        "trainer.project_name": AGENT_NAME,
        "trainer.experiment_name": arm.name,
        "trainer.logger": ["console", "file"],
        "trainer.device": training.device,
        "trainer.nnodes": training.nodes,
        "trainer.n_gpus_per_node": training.gpus_per_node,
        "trainer.total_training_steps": training.steps,
        "trainer.total_epochs": 1000,  # total_training_steps ends the job
        "trainer.save_freq": training.save_every,
        "trainer.test_freq": -1,  # policies are evaluated by a stage of their own
        "trainer.resume_mode": "auto",
        "trainer.default_local_dir": checkpoints,
        "trainer.max_ckpt_to_keep": 2,
        "checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
    }


def _cuda(offload: bool) -> dict[str, Any]:
    return {
        "model.use_remove_padding": True,
        "model.enable_gradient_checkpointing": True,
        "engine.param_offload": offload,
        "engine.optimizer_offload": offload,
    }


def _cpu() -> dict[str, Any]:
    return {
        "model.use_remove_padding": False,
        "model.enable_gradient_checkpointing": False,
        "+model.override_config.attn_implementation": "sdpa",
        "engine.strategy": "fsdp2",
        "engine.use_torch_compile": False,
        "+engine.mixed_precision": FP32,
    }
