"""Bytes that are free, compared with bytes that a job will need, before it starts."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from parallelsearch.errors import ResourceError

GIB = 2**30
UNLIMITED = 2**60  # what cgroup v1 shows where there is no limit is about 2**63


@dataclass(frozen=True, slots=True)
class Space:
    """Free bytes of one place, and the place in words."""

    bytes: int
    place: str


def require_space(need: int, space: Space, what: str, next_step: str) -> None:
    """ResourceError naming needed and free bytes, the place and the next step, unless `need` bytes are free."""
    if need > space.bytes:
        raise ResourceError(f"{what} needs {size(need)}, but {space.place} has {size(space.bytes)} free; {next_step}.")


def size(number: int) -> str:
    """'12.34 GiB', or MiB below one GiB."""
    return f"{number / GIB:.2f} GiB" if number >= GIB else f"{number / 2**20:.1f} MiB"


def disk_available(folder: Path) -> Space:
    """Free bytes of the file system that holds `folder`, which need not exist yet."""
    folder = Path(folder).absolute()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return Space(shutil.disk_usage(existing).free, f"the disk of {folder}")


def memory_available(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> Space:
    """Memory that this process can still take: of the machine, or of the tightest control group around it.

    Slurm and containers limit a job by a control group (version 2 or 1), which MemAvailable does not know of. Pages of
    files count as free: the kernel drops them when memory is asked for.
    """
    spaces = [_machine(proc), *_groups(proc, cgroups)]
    return min(spaces, key=lambda space: space.bytes)


def _machine(proc: Path) -> Space:
    lines = (proc / "meminfo").read_text().splitlines()
    kibibytes = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return Space(kibibytes * 1024, "the machine's memory")


def _groups(proc: Path, cgroups: Path) -> list[Space]:
    """Free memory of every control group with a limit from this process' own up to the root."""
    membership = proc / "self" / "cgroup"
    spaces = []
    for line in membership.read_text().splitlines() if membership.exists() else []:
        number, controllers, own = line.split(":", 2)
        if number == "0":
            root, limit, usage, prefix = cgroups, "memory.max", "memory.current", ""
        elif "memory" in controllers.split(","):
            root, limit, usage, prefix = cgroups / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"
        else:
            continue
        folder = root / own.lstrip("/")
        for group in (folder, *folder.parents):
            if not group.is_relative_to(root):
                break
            if (space := _group(group, limit, usage, prefix)) is not None:
                spaces.append(space)
    return spaces


def _group(folder: Path, limit: str, usage: str, prefix: str) -> Space | None:
    if not (folder / limit).exists() or not (folder / usage).exists():
        return None
    text = (folder / limit).read_text().strip()
    if text == "max" or int(text) >= UNLIMITED:
        return None
    pairs = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
    stat = {name: int(value) for name, value in pairs}
    of_files = stat.get(f"{prefix}inactive_file", 0) + stat.get(f"{prefix}active_file", 0)
    used = int((folder / usage).read_text()) - of_files
    return Space(max(int(text) - used, 0), f"the memory limit of this job ({folder / limit}: {size(int(text))})")
