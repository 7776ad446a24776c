"""An encoder's declaration -> a folder in Hugging Face layout whose manifest says how to use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parallelsearch.config_files import CONFIG_DIR
from parallelsearch.errors import DataError, MismatchError
from parallelsearch.files import MANIFEST, read_json, replacing, sha256, write_json
from parallelsearch.model_folder import SAFE, SAFE_TOKENIZER
from parallelsearch.packages import packaged_file
from parallelsearch.retrieval.encoding.declaration import EncoderDeclaration, load_declaration
from parallelsearch.retrieval.encoding.openvino_model import GRAPH, GRAPH_WEIGHTS, write_graph

WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"


def export_encoder(name: str, out_dir: Path, config_dir: Path = CONFIG_DIR) -> dict[str, Any]:
    """Writes the encoder declared as `name` to `out_dir` and returns its manifest.

    Raises ConfigError for an unknown name, DataError when the package or the published model is not at hand,
    MismatchError when the package or its weights are not the declared ones.
    """
    declaration = load_declaration(name, config_dir)
    out_dir = Path(out_dir)
    _quieten_transformers()
    with replacing(out_dir) as folder:
        folder.mkdir(parents=True)
        if declaration.source == "package":
            _export_package(name, declaration, folder)
        else:
            _export_hub(name, declaration, folder)
        write_graph(folder)
        manifest = {
            "kind": "encoder",
            "name": name,
            **declaration.model_dump(exclude={"file", "sha256"}, exclude_none=True),
            "files": {part: sha256(folder / part) for part in ("config.json", TOKENIZER, WEIGHTS)},
            # Made from the weights, on this machine: not part of what the encoder is.
            "graph": {part: sha256(folder / part) for part in (GRAPH, GRAPH_WEIGHTS)},
        }
        write_json(folder / MANIFEST, manifest)
    return manifest


def exported_manifest(folder: Path, export_again: str) -> dict[str, Any]:
    """The manifest of an exported model, its files being those that were written.

    DataError for a missing file, MismatchError for a changed one; both end with `export_again`.
    """
    manifest: dict[str, Any] = read_json(folder / MANIFEST)
    for part, digest in {**manifest["files"], **manifest.get("graph", {})}.items():
        if not (folder / part).is_file():
            raise DataError(f"{folder / part} is missing; {export_again}.")
        if (found := sha256(folder / part)) != digest:
            raise MismatchError(f"{folder / part} has sha256 {found}, but its manifest says {digest}; {export_again}.")
    return manifest


def _quieten_transformers() -> None:
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()


def package_file(name: str, declaration: EncoderDeclaration) -> Path:
    """The declared weights file inside the installed package (see packages.packaged_file)."""
    package, version, file, checksum = map(
        str, (declaration.package, declaration.version, declaration.file, declaration.sha256)
    )
    return packaged_file(package, version, file, checksum, f"encoder '{name}'")


def _export_package(name: str, declaration: EncoderDeclaration, folder: Path) -> None:
    import torch
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    from parallelsearch.retrieval.encoding.four_bit_e5 import read_four_bit_model, unigram_tokenizer

    weights = package_file(name, declaration)
    if weights.name == WEIGHTS:  # the package holds a folder in Hugging Face layout
        _save(str(weights.parent), None, folder)
        return
    source = read_four_bit_model(weights)
    shape, words = source.shape, source.vocabulary
    config = BertConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.intermediate,
        max_position_embeddings=shape.positions,
        type_vocab_size=shape.token_types,
        layer_norm_eps=source.layer_norm_eps,
        pad_token_id=words.pad,
    )
    with torch.device("meta"):
        model = BertModel(config, add_pooling_layer=False)
    tensors = {name: torch.from_numpy(array) for name, array in source.parameters.items()}
    missing, unexpected = model.load_state_dict(tensors, strict=False, assign=True)
    if missing or unexpected:
        raise DataError(f"{declaration.file} lacks {missing} and has unknown {unexpected}; reinstall the package.")
    model.half().save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=unigram_tokenizer(words),
        bos_token=words.pieces[words.begin][0],
        eos_token=words.pieces[words.end][0],
        unk_token=words.pieces[words.unknown][0],
        pad_token=words.pieces[words.pad][0],
        cls_token=words.pieces[words.begin][0],
        sep_token=words.pieces[words.end][0],
        model_max_length=shape.positions,
    ).save_pretrained(folder)


def _export_hub(name: str, declaration: EncoderDeclaration, folder: Path) -> None:
    try:
        _save(declaration.model, declaration.revision, folder)
    except (OSError, ValueError) as error:  # not there, no safetensors, or code of its own
        reason = str(error).splitlines()[0]
        raise DataError(
            f"encoder '{name}': {declaration.model} (revision {declaration.revision or 'newest'}) is neither in the"
            f" local model cache nor reachable ({reason}); fetch it where there is a network and copy the cache here."
        ) from None


def _save(source: str, revision: str | None, folder: Path) -> None:
    """A model and its tokenizer, of the hub or of a folder, as this project keeps them."""
    from transformers import AutoModel, AutoTokenizer

    AutoModel.from_pretrained(source, revision=revision, **SAFE).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, revision=revision, use_fast=True, **SAFE_TOKENIZER).save_pretrained(folder)
