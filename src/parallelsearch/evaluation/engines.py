"""The engine that an evaluation names: Transformers or vLLM in this process, or a server elsewhere."""

from __future__ import annotations

from pathlib import Path

from parallelsearch.config import EvaluationConfig
from parallelsearch.engines.local_engines import OpenedEngine, open_local_engine
from parallelsearch.runs.local_policy import local_policy


def open_engine(config: EvaluationConfig, policy: str) -> tuple[OpenedEngine, Path]:
    """The engine evaluation.engine over `policy` (see local_policy), and the policy's folder.

    A server (openai) has weights of its own: of the policy only the tokenizer is read. Raises EngineError, and
    TrainingError where the policy cannot be had.
    """
    folder = Path(local_policy(policy, weights=config.engine != "openai"))
    if config.engine == "openai":
        from parallelsearch.engines.openai_engine import OpenAIEngine

        assert config.server is not None  # EvaluationConfig is not valid without
        return OpenAIEngine.open(config.server, folder), folder
    return open_local_engine(config.engine, folder, config.device, config.batch_size), folder
