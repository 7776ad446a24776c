"""Training with veRL, what watches over it, and what may stand in for the search engine."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from parallelsearch.config.distinct import Distinct
from parallelsearch.config.names import DottedName
from parallelsearch.config.section import Section
from parallelsearch.config.server import ServerConfig

# The algorithms that train a policy, and the strategies whose policy each can train.
TRAINABLE: dict[str, tuple[str, ...]] = {
    "ppo": ("search",),
    "grpo": ("search",),
    "sft": ("direct",),
    "rejection_sampling": ("search",),
}
SUPERVISED = ("sft", "rejection_sampling")  # algorithms without a reward
# Keys of the section training that only these algorithms read.
READ_BY: dict[str, tuple[str, ...]] = {
    "sft_learning_rate": SUPERVISED,
    "rejection_samples": ("rejection_sampling",),
    "rejection_keep": ("rejection_sampling",),
}


class GuardConfig(Section):
    """When a training job is ended early: loss, KL, entropy or gradient norm not a finite number, or a collapse.

    A figure's smoothed value is its mean over `window` steps; it is compared with the run's own best before.
    """

    enabled: bool = Field(True, description="false: only a step full of infrastructure failures ends a job early.")
    window: int = Field(5, ge=1, description="Steps of the moving mean.")
    reward: float = Field(0.5, gt=0, description="Share of its best smoothed reward that a run may lose (0.1 always).")
    well_formed: float = Field(0.5, gt=0, description="Share of its best well-formed share that a run may lose.")
    entropy: float = Field(0.98, gt=0, description="Share of its highest smoothed entropy that a run may lose.")
    gibberish: float = Field(
        0.5, gt=0, le=1, description="Smoothed share of episodes without any tag, where it was once below half of this."
    )
    failures: float = Field(
        0.5, ge=0, le=1, description="Share of a step's episodes that may be lost to infrastructure failures."
    )


class SimulatorConfig(Section):
    """A language model in the place of the search engine while an arm is trained (ZeroSearch, arXiv 2505.04588)."""

    policy: DottedName | None = Field(
        None, description="Name in config/policies of the model that is served beside the job."
    )
    server: ServerConfig | None = Field(None, description="A model that vLLM serves elsewhere; either this or policy.")
    p_start: float = Field(0.0, ge=0, le=1, description="Share of useless searches at the start of the training.")
    p_end: float = Field(0.5, ge=0, le=1, description="Share of useless searches at its end.")
    base: float = Field(4.0, gt=1, description="Base of the exponential curriculum between the two.")
    documents: int = Field(5, ge=1, description="Documents written for each query.")
    words: int = Field(30, ge=1, description="Words of a document, about.")
    max_tokens: int = Field(400, ge=8, description="Tokens of all documents of a query.")
    temperature: float = Field(0.8, ge=0, description="Sampling temperature of the simulating model.")

    @model_validator(mode="after")
    def _has_one_model(self) -> SimulatorConfig:
        if (self.policy is None) is (self.server is None):
            raise ValueError(
                f"training.simulator has {'neither' if self.policy is None else 'both'} of policy and server;"
                " name one model."
            )
        return self


class TrainingConfig(Section):
    """Training with veRL: reinforcement learning, or supervised learning from demonstrations."""

    sets: Distinct[str] = Field(["geoworld.train"], description="Question sets, each DATASET.SPLIT.")
    algorithm: Literal["ppo", "grpo", "sft", "rejection_sampling"] = Field(
        "ppo",
        description="ppo: GAE with a critic; grpo: group-relative; sft: supervised, on question and answer;"
        " rejection_sampling: supervised, on the initial policy's own correct episodes.",
    )
    device: Literal["cpu", "cuda"] = Field("cpu", description="Where the job runs.")
    nodes: int = Field(1, ge=1, description="Nodes of the job.")
    gpus_per_node: int = Field(1, ge=1, description="GPUs of each node (on the CPU: ranks).")
    rollout_engine: Literal["hf", "vllm"] = Field("hf", description="Generation engine.")
    gpu_memory_utilization: float = Field(0.6, gt=0, lt=1, description="Share of GPU memory given to vLLM.")
    steps: int = Field(9, ge=0, description="Training steps; 0: the initial policy answers, nothing is trained.")
    batch_size: int = Field(96, ge=1, description="Prompts a step (supervised: demonstrations a step).")
    mini_batch_size: int = Field(48, ge=1, description="Prompts of an optimiser step, with all their episodes.")
    micro_batch_size: int = Field(16, ge=1, description="Episodes of a forward pass.")
    rollouts_per_prompt: int = Field(1, ge=1, description="Episodes of each prompt (more than 1 for grpo).")
    actor_learning_rate: float = Field(1e-4, gt=0, description="Actor learning rate.")
    critic_learning_rate: float = Field(1e-3, gt=0, description="Critic learning rate.")
    actor_warmup_ratio: float = Field(0.0, ge=0, le=1, description="Share of steps in which the actor rate rises.")
    critic_warmup_ratio: float = Field(0.0, ge=0, le=1, description="Share of steps in which the critic rate rises.")
    gamma: float = Field(1.0, ge=0, le=1, description="Discount.")
    gae_lambda: float = Field(1.0, ge=0, le=1, description="GAE lambda.")
    clip_ratio: float = Field(0.2, gt=0, description="PPO clip range.")
    value_clip: float = Field(0.5, gt=0, description="Clip range of the value loss.")
    kl_coefficient: float = Field(0.0, ge=0, description="KL penalty in the reward (ppo) or in the loss (grpo).")
    entropy_coefficient: float = Field(0.0, ge=0, description="Entropy bonus.")
    temperature: float = Field(1.0, gt=0, description="Sampling temperature of rollouts.")
    top_p: float = Field(1.0, gt=0, le=1, description="Nucleus of rollouts.")
    mask_observations: bool = Field(
        True, description="false: retrieved text is trained on as if the model had written it (Search-R1's ablation)."
    )
    offload: bool = Field(False, description="FSDP parameters and optimiser state in CPU memory between steps.")
    save_every: int = Field(3, ge=1, description="Steps between checkpoints.")
    sft_learning_rate: float = Field(1e-3, gt=0, description="Peak learning rate of sft and rejection_sampling.")
    rejection_samples: int = Field(5, ge=1, description="Episodes sampled of each prompt by rejection_sampling.")
    rejection_keep: Literal["all", "one"] = Field(
        "all", description="Which correct, well-formed episodes of a prompt are learned from: all, or the first one."
    )
    guard: GuardConfig = Field(GuardConfig(), description="What ends a job early.")
    simulator: SimulatorConfig | None = Field(
        None, description="A model that plays the search engine; none: the index is searched."
    )
