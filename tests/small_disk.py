"""A disk of a few MiB, that can be filled: a tmpfs, which only root may mount."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PAGE = 4096


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """Mounts it at `folder`; where this user or machine must not, the test is skipped."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "parallelsearch-test", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount on this machine: a disk that is full cannot be tried")
    if mounted.returncode:
        pytest.skip(f"a disk that is full cannot be tried, since nothing may be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, leave: int = 0) -> Path:
    """Writes DISK/filler until `leave` bytes (of whole pages) are free; to be deleted to make room again."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(PAGE))
        except OSError as error:
            assert error.errno == errno.ENOSPC
        stream.truncate(stream.tell() - leave)
    return filler
