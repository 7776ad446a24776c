"""Files between stages: written to a temporary name, renamed when complete, described by a manifest written last."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from parallelsearch.errors import DataError
from parallelsearch.machine.full_disk import naming_full_disk

MANIFEST = "manifest.json"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; renames it to `path` when the block ends, removes it when it raises.

    The block may create a file or a folder there. A folder that already stands at `path` is replaced. ResourceError
    where the disk is full.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.{uuid4().hex[:8]}.partial")
    try:
        with naming_full_disk(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield partial
            if path.is_dir():
                shutil.rmtree(path)
            partial.replace(path)
    finally:
        if partial.is_dir():
            shutil.rmtree(partial)
        else:
            partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text atomically."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Writes JSON atomically, keys in the given order."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")


def read_json(path: Path) -> Any:
    """Reads JSON; a missing or broken file is a DataError that names it."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path} is missing; rerun the stage that writes it.") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not valid JSON ({error}); delete it and rerun the stage that writes it.") from None


def sha256(path: Path) -> str:
    """Hex SHA-256 of a file, read in blocks of 1 MiB."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
