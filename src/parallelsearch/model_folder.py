"""Folders of models in Hugging Face layout: weights as safetensors only, and unchanged since they were written.

Python's pickle, the format of .bin and .pt files, runs whatever code its author put in; safetensors holds numbers
alone. Code that comes with a model is never run: whatever opens one passes `trust_remote_code=False`, and there is no
setting for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parallelsearch.errors import DataError, MismatchError
from parallelsearch.files import sha256

PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
# For every from_pretrained: weights as safetensors or not at all, none of the model's own code.
SAFE: dict[str, Any] = {"use_safetensors": True, "trust_remote_code": False}
SAFE_TOKENIZER: dict[str, Any] = {"trust_remote_code": False}


def require_safetensors(folder: Path, name: str = "") -> None:
    """DataError for a model's folder without *.safetensors; it names the pickle where there is one.

    `name` is what the reader called the model, where that is not the folder.
    """
    if any(folder.glob("*.safetensors")):
        return
    called = name or str(folder)
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if pickles:
        raise DataError(
            f"{called} holds its weights as a pickle ({pickles[0]}), which can run any code when it is read; take a"
            " revision with *.safetensors, or convert it where you trust its author."
        )
    raise DataError(f"{called} holds no weights (*.safetensors); take a complete model, or train the policy again.")


def file_checksums(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a model's folder but its manifest, by name."""
    return {
        path.name: sha256(path) for path in sorted(folder.glob("*")) if path.is_file() and path.name != "manifest.json"
    }


def require_unchanged(folder: Path, checksums: Mapping[str, str], recorded_in: Path, next_step: str) -> None:
    """DataError for a file of `checksums` that is missing, MismatchError for one that has another SHA-256."""
    for name, expected in checksums.items():
        path = folder / name
        if not path.is_file():
            raise DataError(f"{path} is missing; {next_step}.")
        if (found := sha256(path)) != expected:
            raise MismatchError(f"{path} has sha256 {found}, but {recorded_in} says {expected}; {next_step}.")
