"""The package index still resolves every environment to exactly its lock. Needs the network: `make lock-check`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from parallelsearch.machine.environments import ENVIRONMENTS, read_lock

pytestmark = pytest.mark.network
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def resolved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of envs/ whose locks were resolved anew; uv reads metadata only (its settings forbid builds)."""
    folder = tmp_path_factory.mktemp("locks") / "envs"
    shutil.copytree(ROOT / "envs", folder)
    for command in (["bash", "envs/lock.sh"], ["bash", "envs/lock.sh", "--cpu", "envs/cpu-resolved.txt"]):
        done = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("environment", [name for name in ENVIRONMENTS if name != "cpu"])
def test_the_resolver_finds_the_lock_and_nothing_else(resolved: Path, environment: str) -> None:
    for name in (f"{environment}.txt", f"{environment}.yaml"):
        assert (resolved / name).read_text() == (ROOT / "envs" / name).read_text(), f"run `make locks`, see {name}"


def test_the_tested_environment_is_one_that_the_resolver_finds(resolved: Path) -> None:
    assert read_lock(resolved / "cpu-resolved.txt").pins == read_lock(ROOT / "envs" / "cpu.txt").pins


def test_a_conflict_is_found(resolved: Path, tmp_path: Path) -> None:
    """The resolver is a check that can fail: vLLM's numba wants an older numpy."""
    broken = tmp_path / "envs"
    shutil.copytree(resolved, broken)
    lines = (broken / "gpu.in").read_text().splitlines()
    changed = ["numpy==2.4.6" if line.startswith("numpy==") else line for line in lines]
    (broken / "gpu.in").write_text("\n".join(changed) + "\n")
    done = subprocess.run(["bash", "envs/lock.sh"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode != 0 and "No solution found" in done.stderr
