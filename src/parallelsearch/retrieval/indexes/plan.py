"""What an index of a given size needs: asked before a night is spent on building it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from parallelsearch.config import INDEX_KINDS, IndexConfig
from parallelsearch.errors import ConfigError
from parallelsearch.machine.preflight import size
from parallelsearch.retrieval.indexes.building import BLOCK_ROWS, training_count
from parallelsearch.retrieval.indexes.calibration import Estimate, estimate
from parallelsearch.retrieval.indexes.kinds import IVF_KINDS, PQ_CENTROIDS, complete_parameters

FLOAT32, FLOAT16, INT64, INT32 = 4, 2, 8, 4
BYTES_PER_VALUE = {"flat": 4, "flat_fp16": 2, "flat_int8": 1, "ivf_flat": 4, "hnsw": 4}
REMARKS = {
    "flat": "exact",
    "flat_fp16": "exact: embeddings are stored in float16",
    "flat_int8": "8 bits a value",
    "ivf_flat": "reads nprobe of nlist lists",
    "ivf_pq": "m bytes a vector: the smallest",
    "hnsw": "the slowest to build",
}


@dataclass(frozen=True, slots=True)
class IndexNeed:
    """What one kind of index takes and gives.

    bytes: of the file, and of memory once it is open. build_bytes: of memory while it is built.
    """

    kind: str
    parameters: dict[str, int]
    bytes: int
    build_bytes: int
    estimate: Estimate
    remark: str


def index_needs(rows: int, dim: int) -> list[IndexNeed]:
    """Needs of each kind for `rows` vectors of `dim` values with default parameters; impossible kinds are left out."""
    needs = []
    for kind in get_args(INDEX_KINDS):
        try:
            parameters = complete_parameters(IndexConfig(kind=kind), rows, dim)
        except ConfigError:
            continue
        needs.append(
            IndexNeed(
                kind,
                parameters,
                index_bytes(kind, rows, dim, parameters),
                build_bytes(kind, rows, dim, parameters),
                estimate(kind, rows, dim, parameters),
                REMARKS[kind],
            )
        )
    return needs


def index_bytes(kind: str, rows: int, dim: int, parameters: dict[str, int]) -> int:
    """Bytes of index.faiss, by FAISS' own layouts; an opened index takes as many.

    Every kind but ivf_pq stores a vector as 4, 2 or 1 bytes a value, ivf_pq as m bytes. flat_int8 adds each value's
    range. IVF adds the centroids of its lists and an 8-byte id a vector; ivf_pq also the centroids of its codes and a
    rotation. hnsw adds, for each vector, a level (4 bytes), a place (8) and its links of 4 bytes: 2 * M on the lowest
    level, and M on each of the 1 / (M - 1) levels above that a vector has on average.
    """
    if kind == "ivf_pq":
        total = rows * parameters["m"] + (PQ_CENTROIDS * dim + dim * dim) * FLOAT32
    else:
        total = rows * dim * BYTES_PER_VALUE[kind]
    if kind == "flat_int8":
        total += 2 * dim * FLOAT32
    if kind in IVF_KINDS:
        total += parameters["nlist"] * (dim * FLOAT32 + INT64) + rows * INT64
    if kind == "hnsw":
        links = parameters["M"] * (2 + 1 / (parameters["M"] - 1))
        total += rows * (round(links * INT32) + INT32 + INT64)
    return total


def build_bytes(kind: str, rows: int, dim: int, parameters: dict[str, int]) -> int:
    """Bytes of memory while the index is built: itself, and the training vectors or one block of embeddings.

    For IVF also the number of each vector's list.
    """
    beside = max(training_count(kind, rows, parameters), min(BLOCK_ROWS, rows))
    lists = rows * INT64 if kind in IVF_KINDS else 0
    return index_bytes(kind, rows, dim, parameters) + lists + beside * dim * (FLOAT32 + FLOAT16)


def embedding_bytes(rows: int, dim: int) -> int:
    """Bytes on disk of the float16 shards."""
    return rows * dim * FLOAT16


def smaller_kind(rows: int, dim: int, bytes_free: int, build: bool) -> str:
    """What to do when an index does not fit: the kind of best recall that does, or how much to ask for."""
    needs = index_needs(rows, dim)
    taken = {need.kind: need.build_bytes if build else need.bytes for need in needs}
    fitting = [need for need in needs if taken[need.kind] <= bytes_free]
    if not fitting:
        least = min(needs, key=lambda need: taken[need.kind])
        return f"the smallest kind, '{least.kind}', needs {size(taken[least.kind])}: ask for as much"
    best = max(fitting, key=lambda need: need.estimate.recall_at_3)
    return f"set index.kind to '{best.kind}', which needs {size(taken[best.kind])}, or ask for more memory"
