"""What doctor says about a machine."""

from __future__ import annotations

import importlib.metadata
import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from parallelsearch.errors import ConfigError
from parallelsearch.machine import node
from parallelsearch.machine.doctor import app, examine, examine_environment, runnable, whole_environment
from parallelsearch.machine.environments import ENVIRONMENTS
from parallelsearch.machine.node import Check, Gpu, read_gpus

ROOT = Path(__file__).resolve().parents[2]


def test_this_environment_is_found_as_it_is() -> None:
    checks = {check.name: check for check in examine(ROOT / "envs" / "cpu.txt")}
    assert checks["pyarrow"].found == importlib.metadata.version("pyarrow")
    assert checks["torch"].ok and checks["torch"].next_step == ""
    assert checks["processor"].found.split()[0].isdigit()


def test_a_version_beside_the_lock_and_a_missing_package_name_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("pyarrow==0.1\n")
    monkeypatch.setattr("parallelsearch.machine.doctor.PACKAGES", ("pyarrow", "no-such-package"))
    checks = {check.name: check for check in examine(lock)}
    assert not checks["pyarrow"].ok and "Locked is 0.1" in checks["pyarrow"].next_step
    assert not checks["pyarrow"].needed  # another version may still run
    assert checks["no-such-package"].needed and "make env" in checks["no-such-package"].next_step


def test_the_laptop_study_needs_no_gpu_and_no_slurm() -> None:
    checks = [
        Check("torch", "2", True, needed=True),
        Check("GPUs", "none", False),
        Check("Slurm", "none", False),
        Check("browser", "none", False),
    ]
    studies = runnable(checks)
    assert [studies[name] for name in studies] == [True, False, False, False]
    assert not any(runnable([Check("torch", "absent", False, needed=True), *checks[1:]]).values())


def test_json_holds_the_checks_and_the_exit_code_says_whether_the_laptop_study_can_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(app, ["--json"])
    said = json.loads(done.stdout)
    assert done.exit_code == 0 and said["runnable"]["laptop study (make demo)"] is True
    assert {"name", "found", "ok", "needed", "next_step"} == said["checks"][0].keys()
    monkeypatch.setattr("parallelsearch.machine.doctor.PACKAGES", ("no-such-package",))
    done = CliRunner().invoke(app, [])
    assert done.exit_code == 1
    assert "NO  no-such-package" in done.stdout and "make env" in done.stdout


def lock_of(folder: Path, environment: str, *pins: str) -> Path:
    (folder / f"{environment}.txt").write_text("".join(f"{pin}\n" for pin in pins))
    return folder


def test_an_environment_as_it_is_locked_is_whole(tmp_path: Path) -> None:
    here = [f"{name}=={importlib.metadata.version(name).split('+')[0]}" for name in ("torch", "pyarrow", "pytest")]
    check = whole_environment("report", lock_of(tmp_path, "report", *here))
    assert check.ok and check.needed and check.found.startswith("3 packages as in ")


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_what_differs_from_the_lock_is_named_with_the_next_step(environment: str, tmp_path: Path) -> None:
    pins = ["pyarrow==0.1", "torch==0.1", *(f"absent{number}==1" for number in range(8))]
    check = whole_environment(environment, lock_of(tmp_path, environment, *pins))
    version = importlib.metadata.version("pyarrow")
    assert not check.ok and check.needed
    assert f"10 of 10 packages are not as in {tmp_path}" in check.found
    assert f"pyarrow {version} (locked: 0.1)" in check.found and check.found.endswith(" and 5 more")
    assert ("make env" if environment == "cpu" else f"envs/install.sh {environment}") in check.next_step


def test_a_node_without_gpus_is_told_where_to_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi
    lock_of(tmp_path, "gpu", f"pyarrow=={importlib.metadata.version('pyarrow')}")
    checks = {check.name: check for check in examine_environment("gpu", tmp_path)}
    assert not checks["GPUs"].ok and checks["GPUs"].needed and "Run this on a GPU node" in checks["GPUs"].next_step
    assert {"Python", "environment gpu", "memory", "disk", "shared memory", "open files", "ports"} <= checks.keys()


# As nvidia-smi prints it; on a driver that does not know the compute capability, and beside a message.
LISTED = """NVIDIA H100 80GB HBM3, 81559, 580.95.05, 9.0
Tesla V100-SXM2-32GB, 32768, 580.95.05, 7.0
NVIDIA A100, 40960, 470.57.02, [N/A]
NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.
"""


def test_the_list_of_gpus_is_read() -> None:
    assert [(gpu.name, round(gpu.memory_gib, 1), gpu.driver, gpu.capability) for gpu in read_gpus(LISTED)] == [
        ("NVIDIA H100 80GB HBM3", 79.6, "580.95.05", 9.0),
        ("Tesla V100-SXM2-32GB", 32.0, "580.95.05", 7.0),
        ("NVIDIA A100", 40.0, "470.57.02", 0.0),
    ]


def test_gpus_are_compared_with_what_the_papers_study_asks_for() -> None:
    h100 = Gpu("H100", 79.6, "580", 9.0)
    v100 = Gpu("V100", 32.0, "580", 7.0)
    assert node.gpus([h100] * 8).ok and node.gpu_memory([h100]).ok and node.gpu_generation([h100]).ok
    few = node.gpus([h100] * 2)
    assert not few.ok and not few.needed and few.found == "H100, 80 GiB; H100, 80 GiB"
    assert "32 GiB at least" in node.gpu_memory([h100, v100]).found
    old = node.gpu_generation([h100, v100])
    assert not old.ok and old.needed and "A100 or newer" in old.next_step
    assert node.gpus([]).found == "nvidia-smi found none" and node.gpus(None).found == "none"


def test_a_port_in_use_is_named_with_the_command_that_would_want_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        check = node.ports({port: "retriever serve"})
        assert not check.ok and not check.needed
        assert check.found == f"{port} is taken" and "--port for retriever serve" in check.next_step
    assert node.ports({port: "retriever serve"}).found == f"{port} free"


def test_the_command_looks_at_one_environment_and_refuses_an_unknown_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(app, ["--environment", "retriever", "--json"])
    said = json.loads(done.stdout)
    assert done.exit_code == 1 and said["runnable"] == {"encoding, index and server on GPUs": False}
    assert isinstance(CliRunner().invoke(app, ["--environment", "gpus"]).exception, ConfigError)
