"""The policy that a run leaves: a checkpoint's weights in Hugging Face layout, proved equal by their logits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parallelsearch.errors import TrainingError
from parallelsearch.files import replacing
from parallelsearch.model_folder import SAFE, SAFE_TOKENIZER
from parallelsearch.runs.tensor_file import load_tensors

if TYPE_CHECKING:
    import torch

PROMPT = "Question: Which city is larger, Oslo or Lima?\n<think> Both at once. </think><search> Oslo ## Lima </search>"
# Equal weights in float32 give equal logits but for the order of sums, some 1e-6 of a logit's size. Weights rounded to
# bfloat16 on the way (8 bits of mantissa, 4e-3 of each weight) move logits by more than 1e-3.
TOLERANCE = 1e-4  # of the largest logit, at least of 1


def export_policy(actor: Path, target: Path) -> None:
    """Writes the policy of an actor's checkpoint (global_step_N/actor) to `target`: weights in float32, and tokenizer.

    What was written is read again, and its logits on a fixed prompt are compared with those of the checkpoint's own
    shards, from which training would go on. TrainingError where weights are missing, are not finite or differ.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = actor / "huggingface"
    if not list(source.glob("*.safetensors")):
        raise TrainingError(f"{source} holds no weights; delete the run's checkpoints and train again.")
    with replacing(target) as partial:
        model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, **SAFE)
        if not all(torch.isfinite(tensor).all() for tensor in model.parameters()):
            raise TrainingError(f"{source} has weights that are not finite numbers; the training diverged.")
        model.save_pretrained(partial)
        AutoTokenizer.from_pretrained(source, **SAFE_TOKENIZER).save_pretrained(partial)
        del model
        token_ids = [
            AutoTokenizer.from_pretrained(folder, **SAFE_TOKENIZER).encode(PROMPT) for folder in (source, partial)
        ]
        written = _logits(AutoModelForCausalLM.from_pretrained(partial, dtype=torch.float32, **SAFE), token_ids[1])
        own = _logits(_own_model(actor), token_ids[0])
        difference = float((written - own).abs().max()) if written.shape == own.shape else float("inf")
        if token_ids[0] != token_ids[1] or not difference <= TOLERANCE * max(1.0, float(own.abs().max())):
            raise TrainingError(
                f"The policy exported from {actor} gives other logits than the checkpoint (largest difference"
                f" {difference:.3g}); check the versions of veRL and Transformers in envs/."
            )


def _logits(model: Any, token_ids: list[int]) -> torch.Tensor:
    """Logits [tokens, vocabulary] of one sequence."""
    import torch

    with torch.no_grad():
        return model.eval()(torch.tensor([token_ids])).logits[0]


def _own_model(actor: Path) -> Any:
    """The model of a checkpoint out of the shards that veRL itself resumes from, in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(actor / "huggingface", dtype=torch.float32, **SAFE)
    state = {name: tensor.to(torch.float32) for name, tensor in merged_shards(actor).items()}
    unknown = model.load_state_dict(state, strict=False).unexpected_keys
    missing = {name for name, _ in model.named_parameters()} - set(state)  # of tied parameters one name is listed
    if missing or unknown:
        raise TrainingError(
            f"The shards in {actor} do not fit the model described beside them (missing: {sorted(missing)[:3]},"
            f" unknown: {unknown[:3]}); delete the run's checkpoints and train again."
        )
    return model


def merged_shards(actor: Path) -> dict[str, torch.Tensor]:
    """The whole tensors of a checkpoint of an FSDP job, each joined from its ranks' parts.

    Of a shard's pickle only tensors are admitted; a TrainingError names one that holds anything else.
    """
    import torch
    from torch.distributed.tensor import DTensor

    ranks = sorted(actor.glob("model_world_size_*_rank_*.pt"), key=lambda path: int(re.findall(r"\d+", path.name)[-1]))
    if not ranks:
        raise TrainingError(f"{actor} holds no shards of weights; delete the run's checkpoints and train again.")
    parts = [load_tensors(path, "delete the run's checkpoints and train again") for path in ranks]
    merged = {}
    for name, first in parts[0].items():
        if not isinstance(first, DTensor):
            merged[name] = first
            continue
        # With hybrid sharding the mesh is [replicas, shards]; the first replica holds everything.
        placement: Any = first.placements[-1]
        shards = first.device_mesh.mesh.shape[-1]
        local = [part[name].to_local() for part in parts[:shards]]
        merged[name] = local[0] if placement.is_replicate() else torch.cat(local, dim=placement.dim)
    return merged
