"""config/rerankers/NAME.yaml: all that makes cross-encoders differ, and their export in Hugging Face layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from parallelsearch.config import Section
from parallelsearch.config_files import CONFIG_DIR, declaration_file, read_yaml, validated
from parallelsearch.errors import DataError
from parallelsearch.files import MANIFEST, replacing, sha256, write_json
from parallelsearch.model_folder import SAFE, SAFE_TOKENIZER

FILES = ("config.json", "model.safetensors", "tokenizer.json")


class RerankerDeclaration(Section):
    """A cross-encoder: where its weights come from, and how long its input may be."""

    source: Literal["hub"] = Field(description="A published model; no cross-encoder is known to come in a package.")
    model: str = Field(description="Name of the published model, or a folder in Hugging Face layout.")
    revision: str | None = Field(None, description="Commit of the published model.")
    max_tokens: int = Field(ge=8, description="Longest input (query and passage together) in tokens.")
    licence: str = Field(description="Licence of the weights.")


def load_declaration(name: str, config_dir: Path = CONFIG_DIR) -> RerankerDeclaration:
    """The declaration `name` (file name without .yaml) in `config_dir`/rerankers; ConfigError lists the known ones."""
    path = declaration_file("rerankers", name, "reranker", config_dir)
    return validated(RerankerDeclaration, read_yaml(path), f"reranker {name} ({path})")


def export_reranker(name: str, out_dir: Path, config_dir: Path = CONFIG_DIR) -> dict[str, Any]:
    """Writes the cross-encoder declared as `name` to `out_dir` and returns its manifest.

    Only safetensors are read and no code of the model's own is run. Raises ConfigError for an unknown name, DataError
    when the model is not at hand or gives more than one score for a pair.
    """
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    declared = load_declaration(name, config_dir)
    where: dict[str, Any] = {"revision": declared.revision}
    try:
        model = AutoModelForSequenceClassification.from_pretrained(declared.model, **where, **SAFE)
        tokenizer = AutoTokenizer.from_pretrained(declared.model, use_fast=True, **where, **SAFE_TOKENIZER)
    except (OSError, ValueError) as error:
        raise DataError(
            f"reranker '{name}': {declared.model} (revision {declared.revision or 'newest'}) is neither in the local"
            f" model cache nor reachable ({str(error).splitlines()[0]}); fetch it where there is a network and copy the"
            " cache here."
        ) from None
    if model.config.num_labels != 1:
        raise DataError(
            f"reranker '{name}': {declared.model} gives {model.config.num_labels} scores for a pair, a reranker gives"
            " one; declare a cross-encoder that was trained to rank."
        )
    with replacing(out_dir) as folder:
        folder.mkdir(parents=True)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        files = {part: sha256(folder / part) for part in FILES}
        manifest = {"kind": "reranker", "name": name, **declared.model_dump(exclude_none=True), "files": files}
        write_json(folder / MANIFEST, manifest)
    return manifest
