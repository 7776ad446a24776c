"""How arms are evaluated, judged and tracked."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from parallelsearch.config.budgets import BudgetsConfig
from parallelsearch.config.distinct import Distinct
from parallelsearch.config.section import Section
from parallelsearch.config.server import ServerConfig


class JudgeConfig(ServerConfig):
    """A language model behind an OpenAI-compatible URL that judges answers."""

    in_flight: int = Field(8, ge=1, description="Requests in flight.")


class PublishedProtocol(Section):
    """How the published evaluation answers: it samples, and its loader drops the last incomplete batch of a subset."""

    temperature: float = Field(1.0, ge=0, description="Sampling temperature.")
    drop_last: int = Field(256, ge=0, description="Validation batch size; each structure's last partial batch goes.")


class EvaluationConfig(Section):
    """Which question sets every arm answers, and how."""

    sets: Distinct[str] = Field(["geoworld.test"], description="Question sets, each DATASET.SPLIT.")
    limit: int = Field(0, ge=0, description="At most so many questions of each set; 0: all.")
    drop_last: int = Field(
        0, ge=0, description="Leave out each structure's last incomplete batch of so many questions; 0: keep all."
    )
    temperature: float = Field(0.0, ge=0, description="0: greedy decoding.")
    batch_size: int = Field(64, ge=1, description="Episodes in flight.")
    confidence: float = Field(0.95, gt=0, lt=1, description="Level of the intervals.")
    bootstrap_samples: int = Field(2000, ge=100, description="Resamples of each bootstrap interval.")
    device: Literal["cpu", "cuda"] = Field("cpu", description="Where generation runs (engines hf and vllm).")
    engine: Literal["hf", "vllm", "openai"] = Field(
        "hf", description="hf: Transformers; vllm: in this process; openai: the server, whose model is then evaluated."
    )
    server: ServerConfig | None = Field(
        None, description="Where the policy is served (engine: openai); its tokenizer is that of the policy's folder."
    )
    published_protocol: PublishedProtocol | None = Field(
        None, description="Answer every set a second time as the published evaluation does; none: only as above."
    )
    budgets: BudgetsConfig | None = Field(
        None, description="Answer every set once more under larger limits, for accuracy against budget; none: do not."
    )
    judge: JudgeConfig | None = Field(None, description="LLM-as-judge beside exact match; none: nobody is asked.")

    @model_validator(mode="after")
    def _has_its_server(self) -> EvaluationConfig:
        if self.engine == "openai" and self.server is None:
            raise ValueError(
                "evaluation.engine is 'openai', but evaluation.server is missing; give a server's url and its model."
            )
        return self
