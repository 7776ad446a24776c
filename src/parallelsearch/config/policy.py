"""The language model that is trained, and its warm start."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from parallelsearch.config.names import PlainPath
from parallelsearch.config.section import Section


class PolicyConfig(Section):
    """The language model that is trained."""

    source: Literal["scratch", "hub", "package"] = Field(
        "scratch", description="A small Qwen2 made here, a published model, or a model out of a Python package."
    )
    model: PlainPath | None = Field(None, description="Published model (hub), or name in config/policies (package).")
    revision: PlainPath | None = Field(None, description="Revision of the published model.")
    parameters: int | None = Field(
        None, ge=1, description="Numbers in a published model (hub); what jobs ask a cluster for follows from it."
    )
    vocabulary: int = Field(768, ge=300, description="Tokens of the byte-level BPE tokenizer (source: scratch).")
    hidden_size: int = Field(128, ge=16, description="Width (source: scratch).")
    layers: int = Field(4, ge=1, description="Transformer layers (source: scratch).")
    heads: int = Field(2, ge=1, description="Attention heads (source: scratch).")


class WarmStartConfig(Section):
    """Supervised training on demonstrations before reinforcement learning (source: scratch only)."""

    steps: int = Field(960, ge=1, description="Optimiser steps.")
    batch_size: int = Field(24, ge=1, description="Demonstrations a step, once there are any.")
    learning_rate: float = Field(3e-3, gt=0, description="Peak learning rate (warm-up, plateau, linear decay).")
    parallel_share: float = Field(
        0.2, ge=0, le=1, description="Share of demonstrations that search in parallel where both ways are possible."
    )
