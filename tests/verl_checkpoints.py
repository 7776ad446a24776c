"""Checkpoints as a job leaves them, written by veRL's own manager: python verl_checkpoints.py POLICY OUT KILLS.

OUT/whole/global_step_{1,2}: of a job of two ranks, in the order of veRL's trainer (actor, critic, data.pt, marker).
OUT/kill{n}: of KILLS jobs of one rank that save step after step until SIGKILL ends them, each a little later; half of
them count from the start of the first checkpoint, half from its end.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

RANKS, STEPS = 2, 2


def models(folder: Path) -> dict[str, object]:
    """A small policy and a critic of its size, sharded over all ranks, each with a step of Adam behind it."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from transformers import AutoTokenizer, Qwen2ForCausalLM, Qwen2ForTokenClassification
    from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager

    tokenizer = AutoTokenizer.from_pretrained(folder)
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),), mesh_dim_names=("fsdp",))
    managers = {}
    for role, kind in (("actor", Qwen2ForCausalLM), ("critic", Qwen2ForTokenClassification)):
        torch.manual_seed(1)
        model = kind.from_pretrained(folder, dtype=torch.float32)
        model.config.architectures = [kind.__name__]
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        model(torch.tensor([[5, 6, 7, 8]])).logits.float().pow(2).mean().backward()
        optimizer.step()
        contents = ["model", "optimizer", "extra", *(["hf_model"] if role == "actor" else [])]
        managers[role] = FSDPCheckpointManager(
            model,
            optimizer,
            torch.optim.lr_scheduler.ConstantLR(optimizer),
            tokenizer,
            {"save_contents": contents, "load_contents": contents[:3]},
        )
    return managers


def save(managers: dict[str, object], out: Path, step: int) -> None:
    """One checkpoint as verl/trainer/ppo/v1/trainer_base.py saves it."""
    import torch

    for role, manager in managers.items():
        manager.save_checkpoint(str(out / f"global_step_{step}" / role), None, step)
    if torch.distributed.get_rank() == 0:
        torch.save({"position": step}, out / f"global_step_{step}" / "data.pt")
        (out / "latest_checkpointed_iteration.txt").open("w").write(str(step))


def job(rank: int, ranks: int, policy: Path, out: Path, steps: int) -> None:
    """One rank of a job that saves `steps` checkpoints; the file OUT/started appears when the first one begins."""
    import torch

    torch.set_num_threads(1)
    store = torch.distributed.FileStore(str(out / "store"), ranks)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks, store=store)
    managers = models(policy)
    (out / "started").touch()
    for step in range(1, steps + 1):
        save(managers, out, step)
        torch.distributed.barrier()


def forked(rank: int, ranks: int, policy: Path, out: Path, steps: int) -> int:
    """The process id of a child that runs one rank; what is imported already is not imported again."""
    out.mkdir(parents=True, exist_ok=True)
    if child := os.fork():
        return child
    status = 1
    try:
        job(rank, ranks, policy, out, steps)
        status = 0
    finally:
        os._exit(status)


def main() -> None:
    import verl.utils.checkpoint.fsdp_checkpoint_manager  # noqa: F401  # with the project's CPU platform
    from transformers import Qwen2ForCausalLM, Qwen2ForTokenClassification  # noqa: F401

    policy, out, kills = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    children = [forked(rank, RANKS, policy, out / "whole", STEPS) for rank in range(RANKS)]
    if any(os.waitpid(child, 0)[1] for child in children):
        sys.exit("a rank failed")
    for number in range(kills):
        folder = out / f"kill{number}"
        child = forked(0, 1, policy, folder, 1000)
        awaited = folder / ("started" if number % 2 else "latest_checkpointed_iteration.txt")
        while not awaited.exists():
            time.sleep(0.001)
        time.sleep(0.02 * number)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
