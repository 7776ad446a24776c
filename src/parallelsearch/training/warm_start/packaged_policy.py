"""config/policies/NAME.yaml: a published language model that comes inside a Python package, so without a model hub."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from parallelsearch.config import Section
from parallelsearch.config_files import CONFIG_DIR, declaration_file, read_yaml, validated
from parallelsearch.files import MANIFEST, replacing, write_json
from parallelsearch.model_folder import SAFE, SAFE_TOKENIZER, file_checksums
from parallelsearch.packages import packaged_file
from parallelsearch.training.warm_start.policy import save_policy

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class PackagedPolicy(Section):
    """A language model in GGUF format inside a Python package."""

    model: str = Field(description="Name of the published model.")
    package: str = Field(description="Name of the Python package.")
    version: str = Field(description="Version of the Python package.")
    file: str = Field(description="GGUF file inside the package.")
    sha256: str = Field(description="Checksum of that file.")
    parameters: int = Field(ge=1, description="Numbers in the model.")
    licence: str = Field(description="Licence of the weights.")


def load_packaged_policy(name: str, config_dir: Path = CONFIG_DIR) -> PackagedPolicy:
    """The declaration `name` in `config_dir`/policies; a ConfigError lists the known ones."""
    path = declaration_file("policies", name, "policy", config_dir)
    return validated(PackagedPolicy, read_yaml(path), f"policy {name} ({path})")


def export_packaged_policy(name: str, out_dir: Path, config_dir: Path = CONFIG_DIR) -> dict[str, Any]:
    """Writes the declared model to `out_dir` in Hugging Face layout (bfloat16) and returns its manifest.

    Raises ConfigError for an unknown name, DataError and MismatchError as packages.packaged_file does.
    """
    declaration = load_packaged_policy(name, config_dir)
    source = packaged_file(
        declaration.package, declaration.version, declaration.file, declaration.sha256, f"policy '{name}'"
    )
    with replacing(out_dir) as folder:
        folder.mkdir(parents=True)
        model, tokenizer = _read_gguf(source)
        save_policy(model, tokenizer, folder)
        manifest = {
            "kind": "policy",
            "name": name,
            **declaration.model_dump(include={"model", "package", "version", "licence"}),
            "parameters": model.num_parameters(),
            "files": file_checksums(folder),
        }
        write_json(folder / MANIFEST, manifest)
    return manifest


def _read_gguf(path: Path) -> tuple[PreTrainedModel, Any]:
    """Model and tokenizer of a GGUF file; the model is one that can be saved and trained, its weights dequantised."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, **SAFE_TOKENIZER)
        read: Any = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32, **SAFE)
    settings = read.config.to_dict()
    for key in ("quantization_config", "_name_or_path", "model_type", "transformers_version", "architectures", "dtype"):
        settings.pop(key, None)
    model = type(read)(type(read.config)(**settings))
    model.load_state_dict(read.state_dict())
    model.tie_weights()
    model.generation_config = read.generation_config
    return model.to(torch.bfloat16), tokenizer
