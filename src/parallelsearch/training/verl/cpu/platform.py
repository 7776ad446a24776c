"""The CPU as a veRL platform: gloo, no accelerator memory, logical GPUs for Ray's book-keeping."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import psutil
import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry


def _resident_bytes(*_: Any, **__: Any) -> int:
    return psutil.Process().memory_info().rss


def _free_and_total(*_: Any, **__: Any) -> tuple[int, int]:
    memory = psutil.virtual_memory()
    return memory.available, memory.total


class _CpuDevice(SimpleNamespace):
    """Stands in for torch.cuda; whatever is not given here is looked up in torch.cpu."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(torch.cpu, name)


def _nothing(*_: Any, **__: Any) -> None:
    return None


CPU_DEVICE = _CpuDevice(
    is_available=lambda: True,
    device_count=lambda: 1,
    current_device=lambda: 0,
    get_device_name=lambda *_: "CPU",
    device=lambda *_: nullcontext(),
    set_device=_nothing,
    synchronize=_nothing,
    empty_cache=_nothing,
    ipc_collect=_nothing,
    reset_peak_memory_stats=_nothing,
    memory_allocated=_resident_bytes,
    memory_reserved=_resident_bytes,
    max_memory_allocated=_resident_bytes,
    max_memory_reserved=_resident_bytes,
    mem_get_info=_free_and_total,
    get_rng_state=lambda *_: torch.get_rng_state(),
    set_rng_state=lambda state, *_: torch.set_rng_state(state),
    manual_seed=torch.manual_seed,
    manual_seed_all=torch.manual_seed,
)


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    """See PlatformBase for the meaning of each member."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = CPU_DEVICE  # type: ignore[assignment]

    def is_available(self) -> bool:
        return True

    def current_device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        pass

    def synchronize(self, device_index: int | None = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "PARALLELSEARCH_CPU_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        pass

    def profiler_stop(self) -> None:
        pass

    def ray_resource_name(self) -> str:
        """veRL only counts resources named GPU or NPU: Ray is started with as many logical GPUs as there are ranks."""
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None
