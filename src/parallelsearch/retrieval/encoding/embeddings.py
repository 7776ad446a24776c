"""The embeddings of a corpus: shards that shards.py wrote one by one, and the manifest that joins them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from parallelsearch.corpus.passages import Corpus
from parallelsearch.errors import DataError, MismatchError
from parallelsearch.files import MANIFEST, read_json, sha256, write_json

DTYPE = np.float16
ROWS_READ_AT_ONCE = 4096
EMBED_AGAIN = "rerun `parallelsearch embed` and `parallelsearch embed-manifest`"


def shard_path(out_dir: Path, shard: int, of: int) -> Path:
    return Path(out_dir) / f"shard-{shard}-of-{of}.npy"


def shard_rows(rows: int, shard: int, of: int) -> tuple[int, int]:
    """First row and end of shard number `shard` (from 0); sizes differ by at most one row."""
    return rows * shard // of, rows * (shard + 1) // of


def encoder_identity(manifest: dict[str, Any]) -> dict[str, Any]:
    """What of an encoder's manifest decides the vectors: any difference makes them incomparable."""
    keys = ("name", "model", "revision", "query_prefix", "passage_prefix", "pooling", "max_tokens", "normalize", "dim")
    return {**{key: manifest.get(key) for key in keys}, "files": manifest["files"]}


def write_embeddings_manifest(corpus_dir: Path, encoder_dir: Path, out_dir: Path, of: int) -> dict[str, Any]:
    """Checks all `of` shards against corpus and encoder, then writes manifest.json, which makes them one artefact."""
    corpus = Corpus(corpus_dir)
    identity = encoder_identity(read_json(Path(encoder_dir) / MANIFEST))
    shards = []
    for shard in range(of):
        path = shard_path(out_dir, shard, of)
        again = f"rerun `parallelsearch embed --shard {shard} --of {of}`"
        if not path.is_file() or not path.with_suffix(".json").is_file():
            raise DataError(f"{path} is missing or unfinished; {again}.")
        found = read_json(path.with_suffix(".json"))
        require_same("corpus sha256", path, found["corpus_sha256"], corpus.folder, corpus.sha256, again)
        require_same_encoder(path, found["encoder"], Path(encoder_dir), identity, again)
        require_same("size in bytes", path, path.stat().st_size, path.with_suffix(".json"), found["bytes"], again)
        require_same("sha256", path, sha256(path), path.with_suffix(".json"), found["sha256"], again)
        shards.append({"file": path.name, "rows": found["rows"], "sha256": found["sha256"], "bytes": found["bytes"]})
    manifest = {
        "kind": "embeddings",
        "encoder": identity,
        "encoder_path": relative_to(Path(encoder_dir), Path(out_dir)),
        "corpus_sha256": corpus.sha256,
        "rows": len(corpus),
        "dim": identity["dim"],
        "dtype": np.dtype(DTYPE).name,
        "shards": shards,
    }
    write_json(Path(out_dir) / MANIFEST, manifest)
    return manifest


class Embeddings:
    """The shards of one embeddings folder, memory-mapped."""

    def __init__(self, folder: Path) -> None:
        """Opens every shard and checks its shape against the manifest; DataError names a truncated shard."""
        self.folder = Path(folder)
        self.manifest: dict[str, Any] = read_json(self.folder / MANIFEST)
        self.dim: int = self.manifest["dim"]
        self.encoder_dir = Path(os.path.normpath(self.folder / self.manifest["encoder_path"]))
        self._shards = [self._open(entry) for entry in self.manifest["shards"]]

    def __len__(self) -> int:
        return int(self.manifest["rows"])

    def blocks(self, size: int = 65_536) -> Iterator[np.ndarray]:
        """All vectors in row order as float32 arrays of at most [size, dim]."""
        for shard in self._shards:
            for start in range(0, len(shard), size):
                yield np.asarray(shard[start : start + size], dtype=np.float32)

    def take(self, rows: np.ndarray) -> np.ndarray:
        """float32 [len(rows), dim]: the vectors of these passage ids, read a part at a time."""
        if len(rows) and not 0 <= np.min(rows) <= np.max(rows) < len(self):
            raise IndexError(f"{self.folder} has {len(self)} vectors, not one for each id up to {np.max(rows)}.")
        vectors = np.empty((len(rows), self.dim), dtype=np.float32)
        ends = np.cumsum([len(shard) for shard in self._shards])
        owner = np.searchsorted(ends, rows, side="right")
        for number, shard in enumerate(self._shards):
            places = np.flatnonzero(owner == number)
            first = ends[number] - len(shard)
            for start in range(0, len(places), ROWS_READ_AT_ONCE):
                part = places[start : start + ROWS_READ_AT_ONCE]
                vectors[part] = shard[rows[part] - first]
        return vectors

    def _open(self, entry: dict[str, Any]) -> np.ndarray:
        path = self.folder / entry["file"]
        expected = (entry["rows"][1] - entry["rows"][0], self.dim)
        try:
            vectors = np.load(path, mmap_mode="r") if expected[0] else np.zeros(expected, DTYPE)
        except (OSError, EOFError, ValueError) as error:
            raise DataError(f"{path} is missing, truncated or broken ({error}); {EMBED_AGAIN}.") from None
        if vectors.shape != expected:
            raise MismatchError(f"{path} has shape {vectors.shape}, but the manifest says {expected}; {EMBED_AGAIN}.")
        return vectors


def relative_to(path: Path, start: Path) -> str:
    """`path` as seen from the folder `start`, so that a study's folder can be moved as a whole."""
    return os.path.relpath(path.resolve(), start.resolve())


def require_same(what: str, left: Path, left_value: Any, right: Path, right_value: Any, next_step: str) -> None:
    """MismatchError naming both places and both values, unless they are equal."""
    if left_value != right_value:
        raise MismatchError(f"{left} has {what} {left_value}, but {right} has {right_value}; {next_step}.")


def require_same_encoder(
    left: Path, left_value: dict[str, Any], right: Path, right_value: dict[str, Any], next_step: str
) -> None:
    """`require_same` for two encoder identities: names the first setting that differs."""
    for key in left_value:
        require_same(f"encoder {key}", left, left_value[key], right, right_value.get(key), next_step)
