"""What an engine without weights of its own needs of a model folder: the tokenizer and the generation settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parallelsearch.errors import EngineError
from parallelsearch.model_folder import SAFE_TOKENIZER


def open_tokenizer(folder: Path) -> tuple[Any, Any]:
    """Tokenizer and generation settings (None without any) of a folder in Hugging Face layout; else EngineError."""
    from transformers import AutoTokenizer, GenerationConfig

    if not (Path(folder) / "tokenizer_config.json").is_file():
        raise EngineError(f"{folder} holds no tokenizer (tokenizer_config.json is missing); give a model's folder.")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **SAFE_TOKENIZER)
        stated = (Path(folder) / "generation_config.json").is_file()
        return tokenizer, GenerationConfig.from_pretrained(folder) if stated else None
    except (OSError, ValueError) as error:
        raise EngineError(f"The tokenizer in {folder} cannot be loaded: {' '.join(str(error).split())}") from error
