"""The policy that training or an evaluation starts from, as a folder on this machine."""

from __future__ import annotations

from pathlib import Path

from parallelsearch.errors import TrainingError
from parallelsearch.files import MANIFEST, read_json
from parallelsearch.model_folder import require_safetensors, require_unchanged
from parallelsearch.runs.run_folder import policy_folder


def local_policy(name: str, weights: bool = True) -> str:
    """The folder of the policy that training starts from; without `weights`, a published one's are not fetched.

    `name` is a run's folder, a model's folder, or MODEL or MODEL@REVISION of the Hugging Face hub, which is fetched
    (or found in the local cache). Raises TrainingError where it cannot be had, DataError where its weights are no
    safetensors, MismatchError where a file is not the one that was written.
    """
    if Path(name).exists():
        folder = Path(name)
        if not (folder / "config.json").exists():
            folder = policy_folder(folder)
        elif (folder / MANIFEST).is_file():
            exported = read_json(folder / MANIFEST)
            require_unchanged(folder, exported["files"], folder / MANIFEST, "rerun `parallelsearch policy export`")
        if weights:
            require_safetensors(folder)
        return str(folder)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    model, _, revision = name.partition("@")
    wanted = ["*.json", "*.jinja", "*.txt", *(["*.safetensors"] if weights else [])]
    try:
        fetched = snapshot_download(model, revision=revision or None, allow_patterns=wanted)
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise TrainingError(
            f"The policy '{name}' is neither a folder nor to be had from the model hub"
            f" ({type(error).__name__}); where this node has no way out, run `hf download {model}` on one that has."
        ) from error
    if weights:
        require_safetensors(Path(fetched), f"The policy '{name}' of the model hub")
    return fetched
