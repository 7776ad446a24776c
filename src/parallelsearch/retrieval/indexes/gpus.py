"""An opened index copied to the GPUs: split over all of them, vectors of a flat one in float16."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from parallelsearch.errors import ConfigError
from parallelsearch.machine.preflight import Space, require_space
from parallelsearch.retrieval.indexes.plan import index_bytes

GPU_KINDS = ("flat", "ivf_flat", "ivf_pq")  # FAISS has no GPU version of the others
CODE_SIZES = (1, 2, 3, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96)  # bytes, of ivf_pq on a GPU
MOST_NEIGHBOURS = 2048  # of one query on a GPU


def require_gpu_kind(kind: str, parameters: dict[str, int]) -> None:
    """ConfigError for a kind, or a number of bytes a vector, that FAISS cannot search on a GPU."""
    if kind not in GPU_KINDS:
        instead = "flat" if kind.startswith("flat") else "ivf_flat"
        raise ConfigError(
            f"index.device is 'cuda', but FAISS cannot search index.kind '{kind}' on a GPU;"
            f" take '{instead}' (a flat index is stored there in float16), or index.device 'cpu'."
        )
    if kind == "ivf_pq" and parameters["m"] not in CODE_SIZES:
        raise ConfigError(
            f"index.parameters.m is {parameters['m']}, but FAISS on a GPU takes {', '.join(map(str, CODE_SIZES))};"
            " take one of these that divides the size of a vector, or index.device 'cpu'."
        )


def require_gpu_build(faiss: Any) -> None:
    """ConfigError when the installed FAISS has no GPU support, or finds no GPU."""
    if not hasattr(faiss, "StandardGpuResources"):
        build = ", ".join(metadata.packages_distributions().get("faiss", ["FAISS"]))
        raise ConfigError(
            f"index.device is 'cuda', but the installed {build} {faiss.__version__} has no GPU support; install"
            " faiss-gpu (conda) or faiss-gpu-cu12 (pip) in its place, or set index.device to 'cpu'."
        )
    if not faiss.get_num_gpus():
        raise ConfigError("index.device is 'cuda', but FAISS finds no GPU here; ask for one, or take 'cpu'.")


def cloner_options(faiss: Any) -> Any:
    """Options of the copy: each GPU holds a part of the vectors, and half-precision numbers."""
    options = faiss.GpuMultipleClonerOptions()
    options.shard = True
    options.useFloat16 = True
    return options


def gpu_bytes(kind: str, rows: int, dim: int, parameters: dict[str, int]) -> int:
    """GPU memory of the copy: a flat index is stored in float16, the others as on disk."""
    return index_bytes("flat_fp16" if kind == "flat" else kind, rows, dim, parameters)


def gpu_memory_available() -> Space:
    """Free bytes of all visible GPUs together."""
    import torch

    free = [torch.cuda.mem_get_info(number)[0] for number in range(torch.cuda.device_count())]
    return Space(sum(free), f"the memory of {len(free)} GPU(s)")


def to_all_gpus(index: Any, kind: str, parameters: dict[str, int]) -> Any:
    """A copy of `index` on all visible GPUs. Raises ConfigError without GPU support, ResourceError without room."""
    import faiss

    require_gpu_kind(kind, parameters)
    require_gpu_build(faiss)
    need = gpu_bytes(kind, index.ntotal, index.d, parameters)
    step = "ask for more GPUs, take 'ivf_pq', or set index.device to 'cpu'"
    require_space(need, gpu_memory_available(), f"the {kind} index of {index.ntotal} vectors", step)
    return faiss.index_cpu_to_all_gpus(index, co=cloner_options(faiss))
