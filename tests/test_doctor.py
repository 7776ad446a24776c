"""What doctor says about a machine."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from parallelsearch.doctor import Check, app, examine, locked_versions, runnable

ROOT = Path(__file__).resolve().parents[1]


def test_a_lock_is_read_without_comments_markers_and_spelling(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("# all\nFaiss_CPU==1.2  # index\ntorch==2.0 ; python_version > '3'\nunpinned\n-e .\n")
    assert locked_versions(lock) == {"faiss-cpu": "1.2", "torch": "2.0"}
    assert locked_versions(tmp_path / "none.txt") == {}


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
    monkeypatch.setattr("parallelsearch.doctor.PACKAGES", ("pyarrow", "no-such-package"))
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
    monkeypatch.setattr("parallelsearch.doctor.PACKAGES", ("no-such-package",))
    done = CliRunner().invoke(app, [])
    assert done.exit_code == 1
    assert "NO  no-such-package" in done.stdout and "make env" in done.stdout
