"""A study and its arms."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from parallelsearch.config.agent import AgentConfig
from parallelsearch.config.data import CorpusConfig, DatasetConfig, GeoWorldConfig
from parallelsearch.config.distinct import Distinct
from parallelsearch.config.environments import EnvironmentsConfig
from parallelsearch.config.evaluation import EvaluationConfig
from parallelsearch.config.names import DottedName, Name, PlainPath
from parallelsearch.config.policy import PolicyConfig, WarmStartConfig
from parallelsearch.config.retrieval import EmbedConfig, IndexConfig
from parallelsearch.config.reward import RewardConfig
from parallelsearch.config.section import Section
from parallelsearch.config.tracking import TrackingConfig
from parallelsearch.config.training import TRAINABLE, TrainingConfig

WARM_START = "warm-start"  # the name under which the untrained (warm-started) policy is evaluated beside the arms
TREATMENT = "parallelsearch"  # the arm that is compared with the baseline first of all


class ArmConfig(Section):
    """One reward arm, complete: what the overlay in config/arms/ says, over the study's own sections."""

    name: DottedName
    description: str = ""
    agent: AgentConfig
    reward: RewardConfig
    training: TrainingConfig
    policy_of: str | None = Field(None, description="Arm whose trained policy answers; none: its own, or the initial.")

    @model_validator(mode="after")
    def _is_trainable(self) -> ArmConfig:
        if self.policy_of and self.training.steps:
            raise ValueError(
                f"policy_of is '{self.policy_of}', so this arm is answered by that arm's policy; set training.steps to"
                f" 0 (it is {self.training.steps})."
            )
        if self.reward.semantics in ("released", "stepsearch") and self.agent.tags != "search_r1":
            raise ValueError(
                f"reward.semantics is '{self.reward.semantics}', which reads Search-R1's tags, but agent.tags is"
                f" '{self.agent.tags}'; choose other semantics or agent.tags 'search_r1'."
            )
        algorithm, strategy = self.training.algorithm, self.agent.strategy
        if self.training.steps and strategy not in TRAINABLE[algorithm]:
            raise ValueError(
                f"agent.strategy is '{strategy}', but training.algorithm '{algorithm}' trains"
                f" {' or '.join(TRAINABLE[algorithm])}; set training.steps to 0, or choose another."
            )
        return self


class ArmOverride(Section):
    """What a study changes in one arm: keys of its sections, merged over the arm's overlay and validated with it."""

    agent: dict[str, Any] = Field(default_factory=dict, description="Keys of the section agent.")
    reward: dict[str, Any] = Field(default_factory=dict, description="Keys of the section reward.")
    training: dict[str, Any] = Field(default_factory=dict, description="Keys of the section training.")


class StudyConfig(Section):
    """A whole study."""

    results: PlainPath = Field("results", description="Folder of all outputs.")
    seeds: Distinct[int] = Field([0], min_length=1, description="Seeds; each arm is trained once for each.")
    arms: Distinct[DottedName] = Field(min_length=1, description="Names of overlays in config/arms/.")
    arm_overrides: dict[str, ArmOverride] = Field(
        default_factory=dict, description="Arm -> what this study, and no other, changes in it (a published rate, say)."
    )
    baseline: str = Field("search-r1", description="Arm the others are compared with.")
    geoworld: GeoWorldConfig = GeoWorldConfig()
    corpora: dict[Name, CorpusConfig]
    datasets: dict[Name, DatasetConfig]
    embed: EmbedConfig = EmbedConfig()
    index: IndexConfig = IndexConfig()
    agent: AgentConfig = AgentConfig()
    policy: PolicyConfig = PolicyConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    reward: RewardConfig = RewardConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    tracking: TrackingConfig = TrackingConfig()
    environments: EnvironmentsConfig = EnvironmentsConfig()

    @model_validator(mode="after")
    def _names_exist(self) -> StudyConfig:
        for name, dataset in self.datasets.items():
            if dataset.corpus not in self.corpora:
                raise ValueError(
                    f"datasets.{name}.corpus is '{dataset.corpus}', which is not in corpora: {', '.join(self.corpora)}."
                )
        for key, sets in (("training", self.training.sets), ("evaluation", self.evaluation.sets)):
            for entry in sets:
                known, _, split = entry.partition(".")
                if known not in self.datasets or not split:
                    raise ValueError(
                        f"{key}.sets has '{entry}', which is not DATASET.SPLIT of a known data set:"
                        f" {', '.join(self.datasets)}."
                    )
        return self
