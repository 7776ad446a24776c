"""The engines that run a model in this process, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

from parallelsearch.engines.engine import Engine


class OpenedEngine(Engine, Protocol):
    """An Engine that has to be closed."""

    def close(self) -> None: ...


def open_local_engine(name: Literal["hf", "vllm"], folder: Path, device: str, max_rows: int) -> OpenedEngine:
    """Transformers (hf) or vLLM over the model in `folder`; at most `max_rows` requests are decoded together.

    Raises EngineError where the model, or vLLM, cannot be loaded.
    """
    if name == "vllm":
        from parallelsearch.engines.vllm import VllmEngine

        return VllmEngine.open(folder, max_rows=max_rows)
    from parallelsearch.engines.hf import HFEngine

    return HFEngine.open(folder, device=device, max_rows=max_rows)
