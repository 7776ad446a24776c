"""Free memory of a machine and of control groups of both versions, and the sentence when something does not fit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from parallelsearch.errors import ResourceError
from parallelsearch.machine.preflight import Space, disk_available, memory_available, require_space, size

MIB = 2**20


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def machine(root: Path, membership: str) -> tuple[Path, Path]:
    """proc and cgroup folders of a machine with 1,000 MiB available."""
    write(root / "proc/meminfo", "MemTotal: 9999999 kB\nMemFree: 12 kB\nMemAvailable: 1024000 kB\n")
    write(root / "proc/self/cgroup", membership)
    return root / "proc", root / "cgroup"


def test_this_machine() -> None:
    found = memory_available()
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal:"))
    assert 0 < found.bytes <= int(total.split()[1]) * 1024


def test_without_limit_it_is_the_machines_memory(tmp_path: Path) -> None:
    proc, cgroups = machine(tmp_path, "0::/job\n")
    write(cgroups / "job/memory.max", "max\n")
    write(cgroups / "job/memory.current", "1\n")
    assert memory_available(proc, cgroups) == Space(1000 * MIB, "the machine's memory")


def test_the_limit_of_a_job_counts_also_when_it_lies_above_the_step(tmp_path: Path) -> None:
    """Version 2, as Slurm nests it: the job may use 600 MiB, has 300, and 100 of these are pages of files."""
    proc, cgroups = machine(tmp_path, "0::/slurm/job_1/step_0\n")
    write(cgroups / "slurm/job_1/step_0/memory.max", "max\n")
    write(cgroups / "slurm/job_1/step_0/memory.current", "1\n")
    write(cgroups / "slurm/job_1/memory.max", f"{600 * MIB}\n")
    write(cgroups / "slurm/job_1/memory.current", f"{300 * MIB}\n")
    write(cgroups / "slurm/job_1/memory.stat", f"anon 5\ninactive_file {60 * MIB}\nactive_file {40 * MIB}\n")
    found = memory_available(proc, cgroups)
    assert found.bytes == 400 * MIB and "job_1/memory.max: 600.0 MiB" in found.place


def test_a_job_under_version_1(tmp_path: Path) -> None:
    proc, cgroups = machine(tmp_path, "5:cpu,cpuacct:/other\n4:memory:/slurm/job_2\n")
    folder = cgroups / "memory/slurm/job_2"
    write(folder / "memory.limit_in_bytes", f"{500 * MIB}\n")
    write(folder / "memory.usage_in_bytes", f"{450 * MIB}\n")
    write(folder / "memory.stat", f"inactive_file 7\ntotal_inactive_file {30 * MIB}\ntotal_active_file 0\n")
    write(cgroups / "memory/memory.limit_in_bytes", "9223372036854771712\n")
    write(cgroups / "memory/memory.usage_in_bytes", "1\n")
    assert memory_available(proc, cgroups).bytes == 80 * MIB


def test_the_disk_of_a_folder_that_does_not_exist_yet(tmp_path: Path) -> None:
    found = disk_available(tmp_path / "a" / "b")
    assert found.bytes == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.05)
    assert str(tmp_path / "a" / "b") in found.place


def test_the_sentence() -> None:
    assert [size(5 * MIB), size(3 * 2**29)] == ["5.0 MiB", "1.50 GiB"]
    require_space(10, Space(10, "here"), "this", "do that")
    with pytest.raises(ResourceError, match=r"^this needs 1.50 GiB, but here has 5.0 MiB free; do that\.$"):
        require_space(3 * 2**29, Space(5 * MIB, "here"), "this", "do that")
