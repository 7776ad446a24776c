"""The locked environments under envs/: what each pins, and how an installation differs from it."""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass, field
from pathlib import Path

from parallelsearch.errors import ConfigError, DataError

FOLDER = Path("envs")
ENVIRONMENTS = ("cpu", "gpu", "retriever", "report")


@dataclass(frozen=True)
class Lock:
    """The pins of one lock file, by canonical name; `via` says who asked for each, where the lock records it."""

    path: Path
    pins: dict[str, str]
    via: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """A package that is not installed as it is locked; `found` is '' where it is not installed."""

    name: str
    locked: str
    found: str

    def __str__(self) -> str:
        return f"{self.name} {self.found or 'absent'} (locked: {self.locked})"


def canonical(name: str) -> str:
    """A distribution's name as the package index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lock_file(environment: str, folder: Path = FOLDER) -> Path:
    """The lock of an environment; a ConfigError names the known ones, a DataError the missing file."""
    if environment not in ENVIRONMENTS:
        raise ConfigError(f"environment is '{environment}'; known environments: {', '.join(ENVIRONMENTS)}.")
    path = folder / f"{environment}.txt"
    if not path.is_file():
        raise DataError(f"{path} is missing; run this in the project's own folder.")
    return path


def read_lock(path: Path) -> Lock:
    """Reads `name==version` lines with their `# via` comments; DataError for anything else, with its line."""
    pins: dict[str, str] = {}
    via: dict[str, tuple[str, ...]] = {}
    latest = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if match := re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.+!]+)\s*", line):
            latest = canonical(match[1])
            if latest in pins:
                raise DataError(f"{path}, line {number}: {latest} is pinned twice; write the lock anew.")
            pins[latest], via[latest] = match[2], ()
        elif comment := re.fullmatch(r"\s+#(?: via)? *(.*)", line):
            if comment[1]:
                via[latest] += (comment[1] if comment[1].startswith("-") else canonical(comment[1]),)
        elif line.strip() and not line.startswith("#"):
            raise DataError(f"{path}, line {number}: {line!r} is no exact pin (name==version); write the lock anew.")
    return Lock(path, pins, via)


def differences(lock: Lock) -> list[Difference]:
    """What of `lock` is not installed here in the locked version. A local suffix (+cpu, +cu130) is no difference."""
    installed: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        installed.setdefault(canonical(distribution.metadata["Name"]), distribution.version)
    found = ((name, locked, installed.get(name, "")) for name, locked in lock.pins.items())
    return [Difference(*entry) for entry in found if entry[1].partition("+")[0] != entry[2].partition("+")[0]]
