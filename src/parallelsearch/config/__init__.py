"""What a study can say: the typed sections of its configuration, closed to unknown keys. config_files.py reads them."""

from parallelsearch.config.agent import PROMPT_TAGS, PROMPTS, STRATEGIES, TAGS, WITHOUT_SEARCH, AgentConfig
from parallelsearch.config.budgets import BudgetsConfig, UnlimitedConfig
from parallelsearch.config.data import (
    CORPUS_SOURCES,
    OWN,
    READERS,
    STRUCTURES,
    CorpusConfig,
    DatasetConfig,
    GeoWorldConfig,
    PassageLayout,
    QuestionFile,
    QuestionLayout,
    RemoteFile,
)
from parallelsearch.config.environments import EnvironmentsConfig
from parallelsearch.config.evaluation import EvaluationConfig, JudgeConfig, PublishedProtocol
from parallelsearch.config.policy import PolicyConfig, WarmStartConfig
from parallelsearch.config.retrieval import (
    INDEX_KINDS,
    Bm25Config,
    EmbedConfig,
    HybridConfig,
    IndexConfig,
    RerankerConfig,
)
from parallelsearch.config.reward import (
    EXTRA_TERMS,
    SEMANTICS,
    OtcConfig,
    RewardConfig,
    SearchR1FormatConfig,
    StepSearchConfig,
)
from parallelsearch.config.section import Section
from parallelsearch.config.server import ServerConfig
from parallelsearch.config.study import TREATMENT, WARM_START, ArmConfig, ArmOverride, StudyConfig
from parallelsearch.config.tracking import TrackingConfig
from parallelsearch.config.training import READ_BY, SUPERVISED, TRAINABLE, GuardConfig, SimulatorConfig, TrainingConfig

__all__ = [
    "CORPUS_SOURCES",
    "EXTRA_TERMS",
    "INDEX_KINDS",
    "OWN",
    "PROMPTS",
    "PROMPT_TAGS",
    "READERS",
    "READ_BY",
    "SEMANTICS",
    "STRATEGIES",
    "STRUCTURES",
    "SUPERVISED",
    "TAGS",
    "TRAINABLE",
    "TREATMENT",
    "WARM_START",
    "WITHOUT_SEARCH",
    "AgentConfig",
    "ArmConfig",
    "ArmOverride",
    "Bm25Config",
    "BudgetsConfig",
    "CorpusConfig",
    "DatasetConfig",
    "EmbedConfig",
    "EnvironmentsConfig",
    "EvaluationConfig",
    "GeoWorldConfig",
    "GuardConfig",
    "HybridConfig",
    "IndexConfig",
    "JudgeConfig",
    "OtcConfig",
    "PassageLayout",
    "PolicyConfig",
    "PublishedProtocol",
    "QuestionFile",
    "QuestionLayout",
    "RemoteFile",
    "RerankerConfig",
    "RewardConfig",
    "SearchR1FormatConfig",
    "Section",
    "ServerConfig",
    "SimulatorConfig",
    "StepSearchConfig",
    "StudyConfig",
    "TrackingConfig",
    "TrainingConfig",
    "UnlimitedConfig",
    "WarmStartConfig",
]
