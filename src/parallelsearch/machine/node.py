"""What the machine has: processor, memory, disk, GPUs, limits, ports; each with the next step where it is short."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
LAPTOP_MEMORY_GIB = 10
LAPTOP_DISK_GIB = 5
PAPER_GPUS = 8
PAPER_GPU_MEMORY_GIB = 79  # "80 GB"
FLASH_ATTENTION_CAPABILITY = 8.0  # Ampere: flash-attn 2 and bfloat16
SHARED_MEMORY_GIB = 8  # of Ray's object store and of vLLM's workers
MODEL_CACHE_GIB = 20  # one published 7B model, twice while it is fetched
OPEN_FILES = 65_536  # what Ray asks for
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PORTS = {5000: "make mlflow", 8000: "retriever serve, policy serve"}


@dataclass(frozen=True, slots=True)
class Check:
    """One fact about the machine. `needed` ones stop what was asked about when they are not `ok`."""

    name: str
    found: str
    ok: bool
    needed: bool = False
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One line of nvidia-smi; `capability` as in 9.0, 0 where it says none."""

    name: str
    memory_gib: float
    driver: str
    capability: float


def python(exactly: tuple[int, int] | None = None) -> Check:
    """Python 3.11 or newer; with `exactly`, the version that a lock was resolved for."""
    version = platform.python_version()
    have = tuple(map(int, version.split(".")[:2]))
    ok = have >= (3, 11) if exactly is None else have == exactly
    wanted = "3.11 or newer" if exactly is None else f"{exactly[0]}.{exactly[1]}, for which the lock was resolved"
    return Check("Python", version, ok, needed=True, next_step="" if ok else f"Install Python {wanted}.")


def processor() -> Check:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    info = Path("/proc/cpuinfo")
    flags = set(info.read_text(encoding="utf-8").split()) if info.is_file() else set()
    features = ", ".join(flag for flag in CPU_FLAGS if flag in flags) or "no wide vector units found"
    ok = cores >= 2
    return Check("processor", f"{cores} cores; {features}", ok, next_step="" if ok else "Expect twice the time.")


def memory() -> Check:
    info = Path("/proc/meminfo")
    if not info.is_file():
        return Check("memory", "unknown", True)
    match = re.search(r"MemAvailable:\s+(\d+) kB", info.read_text(encoding="utf-8"))
    available = int(match[1]) / 2**20 if match else 0.0
    ok = available >= LAPTOP_MEMORY_GIB
    step = "" if ok else f"The laptop study peaks below {LAPTOP_MEMORY_GIB} GiB: close other programs, or --cores 1."
    return Check("memory", f"{available:.1f} GiB available", ok, next_step=step)


def disk() -> Check:
    free = shutil.disk_usage(".").free / 2**30
    ok = free >= LAPTOP_DISK_GIB
    step = "" if ok else f"Free {LAPTOP_DISK_GIB} GiB, or put the results elsewhere: --config results=FOLDER."
    return Check("disk", f"{free:.1f} GiB free here", ok, needed=True, next_step=step)


def model_cache() -> Check:
    """Room for a published model where the model hub's client keeps them."""
    folder = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    there = next(parent for parent in (folder, *folder.resolve().parents) if parent.is_dir())
    free = shutil.disk_usage(there).free / 2**30
    ok = free >= MODEL_CACHE_GIB
    step = "" if ok else f"Free {MODEL_CACHE_GIB} GiB, or set HF_HOME to a folder on a larger disk."
    return Check("model cache", f"{free:.1f} GiB free at {folder}", ok, next_step=step)


def shared_memory(folder: Path = Path("/dev/shm")) -> Check:
    if not folder.is_dir():
        return Check("shared memory", f"no {folder}", True)
    free = shutil.disk_usage(folder).free / 2**30
    ok = free >= SHARED_MEMORY_GIB
    step = (
        "" if ok else f"Ray and vLLM want {SHARED_MEMORY_GIB} GiB at {folder}: start the container with a larger one."
    )
    return Check("shared memory", f"{free:.1f} GiB free at {folder}", ok, next_step=step)


def open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ok = soft >= OPEN_FILES
    may = hard >= OPEN_FILES
    how = f"ulimit -n {OPEN_FILES} in the job's shell" if may else "ask the administrator for a higher limit"
    step = "" if ok else f"Ray may open {OPEN_FILES}: {how}."
    return Check("open files", f"{soft} (at most {hard})", ok, next_step=step)


def ports(wanted: dict[int, str] = PORTS) -> Check:
    """Whether the ports that commands take by default are free on this machine."""
    taken = {port: user for port, user in wanted.items() if not _is_free(port)}
    found = ", ".join(f"{port} is taken" for port in taken) or f"{', '.join(map(str, wanted))} free"
    step = f"Choose another --port for {'; '.join(taken.values())} (0 takes a free one)." if taken else ""
    return Check("ports", found, not taken, next_step=step)


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def read_gpus(text: str) -> list[Gpu]:
    """The lines that nvidia-smi prints for `list_gpus`: name, memory in MiB, driver, compute capability."""
    found = []
    for line in text.splitlines():
        name, *rest = (part.strip() for part in line.split(","))
        if len(rest) == 3 and re.fullmatch(r"\d+(\.\d+)?", rest[0]):
            capability = float(rest[2]) if re.fullmatch(r"\d+\.\d+", rest[2]) else 0.0
            found.append(Gpu(name, float(rest[0]) / 1024, rest[1], capability))
    return found


def list_gpus() -> list[Gpu] | None:
    """The GPUs that nvidia-smi lists; None without nvidia-smi, or where it fails."""
    if not shutil.which("nvidia-smi"):
        return None
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version,compute_cap", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return read_gpus(done.stdout) if done.returncode == 0 else None


def gpus(found: Sequence[Gpu] | None) -> Check:
    """Enough GPUs for config/paper.yaml."""
    step = f"Not needed for the laptop study; config/paper.yaml asks for {PAPER_GPUS} (training.gpus_per_node)."
    if not found:
        said = "none" if found is None else "nvidia-smi found none"
        return Check("GPUs", said, False, next_step=step)
    ok = len(found) >= PAPER_GPUS
    listed = "; ".join(f"{gpu.name}, {gpu.memory_gib:.0f} GiB" for gpu in found)
    return Check("GPUs", listed, ok, next_step="" if ok else step)


def gpu_memory(found: Sequence[Gpu]) -> Check:
    least = min(gpu.memory_gib for gpu in found)
    ok = least >= PAPER_GPU_MEMORY_GIB
    step = (
        "" if ok else "config/paper.yaml is written for GPUs of 80 GB: set training.offload, or smaller micro batches."
    )
    return Check("GPU memory", f"{least:.0f} GiB at least", ok, next_step=step)


def gpu_generation(found: Sequence[Gpu]) -> Check:
    """Whether flash attention runs on all GPUs."""
    least = min(gpu.capability for gpu in found)
    ok = least >= FLASH_ATTENTION_CAPABILITY
    step = "" if ok else f"flash-attn needs compute capability {FLASH_ATTENTION_CAPABILITY} (A100 or newer)."
    return Check("GPU generation", f"compute capability {least}", ok, needed=True, next_step=step)


def browser() -> Check:
    found = next((path for path in map(shutil.which, BROWSERS) if path), None)
    driver = shutil.which("chromedriver")
    ok = bool(found and driver)
    step = "" if ok else "Only the browser tests need it: apt-get install chromium chromium-driver."
    return Check("browser", f"{found or 'no chromium'}, {driver or 'no chromedriver'}", ok, next_step=step)


def slurm() -> Check:
    found = shutil.which("sbatch")
    step = "" if found else "Only --profile slurm needs it: run on the cluster's login node."
    return Check("Slurm", found or "no sbatch", bool(found), next_step=step)
