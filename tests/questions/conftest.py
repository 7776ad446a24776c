"""Fixtures of the question tests."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes text (or bytes) to a file of the test's folder and returns its path."""

    def write_file(content: str | bytes, name: str = "raw.json") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


@pytest.fixture(scope="session")
def shared_rows(shared_data: Path) -> Callable[[str], list[dict[str, Any]]]:
    """Rows of a shared file, read with nothing but gzip and json."""

    def read(name: str) -> list[dict[str, Any]]:
        text = gzip.decompress((shared_data / name).read_bytes()).decode()
        if name.endswith(".json.gz"):
            return json.loads(text)
        return [json.loads(line) for line in text.split("\n") if line]

    return read
