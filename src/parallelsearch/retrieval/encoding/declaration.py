"""config/encoders/NAME.yaml: all that makes encoders differ. Nothing is ever read off a model's name."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from parallelsearch.config import Section
from parallelsearch.config_files import CONFIG_DIR, declaration_file, read_yaml, validated

Pooling = Literal["mean", "cls"]


class EncoderDeclaration(Section):
    """An encoder: where its weights come from, and how texts are turned into its input."""

    source: Literal["package", "hub"] = Field(description="Weights inside a Python package, or a published model.")
    model: str = Field(description="Name of the published model.")
    revision: str | None = Field(None, description="Commit of the published model (source: hub).")
    package: str | None = Field(None, description="Name of the Python package (source: package).")
    version: str | None = Field(None, description="Version of the Python package (source: package).")
    file: str | None = Field(None, description="Weights file inside the package (source: package).")
    sha256: str | None = Field(None, description="Checksum of that file (source: package).")
    query_prefix: str = Field(description="Put before every query.")
    passage_prefix: str = Field(description="Put before every passage.")
    pooling: Pooling = Field(description="mean of the token vectors, or the first token's (cls).")
    max_tokens: int = Field(ge=8, description="Longest input in tokens, special ones included; longer texts are cut.")
    normalize: bool = Field(True, description="L2-normalise; the inner product is the cosine only then.")
    dim: int = Field(ge=1, description="Size of a vector.")
    licence: str = Field(description="Licence of the weights.")

    @model_validator(mode="after")
    def _source_is_complete(self) -> EncoderDeclaration:
        needed = ("package", "version", "file", "sha256") if self.source == "package" else ()
        for name in needed:
            if getattr(self, name) is None:
                raise ValueError(f"source is 'package', so key '{name}' is needed.")
        return self


def load_declaration(name: str, config_dir: Path = CONFIG_DIR) -> EncoderDeclaration:
    """The declaration `name` (file name without .yaml) in `config_dir`/encoders; ConfigError lists the known ones."""
    path = declaration_file("encoders", name, "encoder", config_dir)
    return validated(EncoderDeclaration, read_yaml(path), f"encoder {name} ({path})")
