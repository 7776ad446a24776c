"""The engine that an evaluation names: Transformers or vLLM in this process, or a server elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from parallelsearch.agent.engine import Engine
from parallelsearch.config import EvaluationConfig
from parallelsearch.training.policy import local_policy


class OpenedEngine(Engine, Protocol):
    """An Engine that has to be closed."""

    def close(self) -> None: ...


def open_engine(config: EvaluationConfig, policy: str) -> tuple[OpenedEngine, Path]:
    """The engine evaluation.engine over `policy` (see local_policy), and the policy's folder.

    A server (openai) has weights of its own: of the policy only the tokenizer is read. Raises EngineError, and
    TrainingError where the policy cannot be had.
    """
    folder = Path(local_policy(policy, weights=config.engine != "openai"))
    if config.engine == "openai":
        from parallelsearch.agent.openai_engine import OpenAIEngine

        assert config.server is not None  # EvaluationConfig is not valid without
        return OpenAIEngine.open(config.server, folder), folder
    if config.engine == "vllm":
        from parallelsearch.agent.vllm_engine import VllmEngine

        return VllmEngine.open(folder, max_rows=config.batch_size), folder
    from parallelsearch.agent.hf_engine import HFEngine

    return HFEngine.open(folder, device=config.device, max_rows=config.batch_size), folder
