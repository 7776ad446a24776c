"""A disk that fills up while a stage writes: its folder is named, nothing looks complete, and room is all it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import faiss
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file
from small_disk import PAGE, fill, small_disk

from parallelsearch.errors import DataError, ResourceError
from parallelsearch.files import replacing, write_json
from parallelsearch.retrieval.encoding import shards

NUMBERS = np.random.default_rng(0).random((4096, 64), dtype=np.float32)  # 1 MiB


def _write_index(path: Path) -> None:
    index = faiss.IndexFlatIP(64)
    index.add(NUMBERS)
    faiss.write_index(index, str(path))


WRITERS: dict[str, Callable[[Path], object]] = {
    "text": lambda path: path.write_text("x" * NUMBERS.nbytes),
    "json": lambda path: write_json(path, NUMBERS[:1024].tolist()),
    "csv": lambda path: pd.DataFrame(NUMBERS).to_csv(path),
    "parquet": lambda path: pq.write_table(pa.table({"x": NUMBERS.ravel()}), path, compression="none"),
    "pandas parquet": lambda path: pd.DataFrame({"x": NUMBERS.ravel()}).to_parquet(path),
    "npy": lambda path: np.save(path.open("wb"), NUMBERS),
    "faiss": _write_index,
    "safetensors": lambda path: save_file({"x": torch.from_numpy(NUMBERS)}, path),
    "torch": lambda path: torch.save(torch.from_numpy(NUMBERS), path),
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """4 MiB."""
    with small_disk(tmp_path / "disk", 4) as mounted:
        yield mounted


@pytest.mark.parametrize("writer", WRITERS)
def test_whatever_library_writes_the_folder_is_named_and_nothing_is_left(disk: Path, writer: str) -> None:
    folder = disk / "tables"
    folder.mkdir()
    (folder / "main").write_text("of the run before")
    filler = fill(disk, leave=64 * PAGE)
    sentence = rf"^the disk of {folder} is full: \S+ was not written; free some, or put .* on a larger disk"
    with pytest.raises(ResourceError, match=sentence), replacing(folder / "main") as partial:
        WRITERS[writer](partial)
    assert [path.name for path in folder.iterdir()] == ["main"]
    assert (folder / "main").read_text() == "of the run before"
    filler.unlink()
    with replacing(folder / "main") as partial:
        WRITERS[writer](partial)
    assert [path.name for path in folder.iterdir()] == ["main"] and (folder / "main").stat().st_size >= NUMBERS.nbytes


def test_other_failures_are_not_taken_for_a_full_disk(disk: Path) -> None:
    with pytest.raises(RuntimeError, match="no such thing"), replacing(disk / "a"):
        raise RuntimeError("no such thing")
    fill(disk)
    with pytest.raises(DataError, match="broken row"), replacing(disk / "a"):
        raise DataError("broken row")
    with pytest.raises(KeyError), replacing(disk / "a"):
        raise KeyError("a")


def test_the_room_of_a_shard_is_taken_before_it_is_encoded(disk: Path) -> None:
    """A page of a mapped file for which there is no room ends the process by SIGBUS, without a word."""
    partial = disk / "embeddings" / ".shard-0-of-1.npy.partial"
    partial.parent.mkdir()
    with pytest.raises(ResourceError, match=f"the disk of {partial.parent} is full"):
        shards._Blocks(partial, {"corpus_sha256": "0"}, (2**16, 64))  # 8 MiB
    assert list(partial.parent.iterdir()) == []
