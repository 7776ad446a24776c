"""What an index of a given size needs, from arithmetic alone: asked before a night is spent on building it."""

from __future__ import annotations

from dataclasses import dataclass

FLOAT32, FLOAT16, INT64, INT32 = 4, 2, 8, 4
HNSW_LINKS = 32


@dataclass(frozen=True, slots=True)
class IndexNeed:
    """Bytes of memory that an opened index of one kind takes, and what it is good for."""

    kind: str
    bytes: int
    remark: str


def index_needs(rows: int, dim: int) -> list[IndexNeed]:
    """Needs of each kind for `rows` vectors of `dim` values (FAISS' own layouts, default parameters).

    flat: 4 bytes a value. flat_fp16: 2. ivf_flat: 4, an 8-byte id and an 8-byte place a vector, and the centroids.
    hnsw: 4, and links of 4 bytes, 2 * M of them on the lowest level and about 2 on the ones above.
    """
    vectors = rows * dim
    lists = int(4 * rows**0.5)
    links = rows * (2 * HNSW_LINKS + 2) * INT32
    return [
        IndexNeed("flat", vectors * FLOAT32, "exact; the time of a search grows with the rows"),
        IndexNeed("flat_fp16", vectors * FLOAT16, "exact up to rounding; half the memory"),
        IndexNeed("ivf_flat", (vectors + lists * dim) * FLOAT32 + rows * 2 * INT64, "fast; recall depends on nprobe"),
        IndexNeed("hnsw", vectors * FLOAT32 + links, "fastest search; slowest build"),
    ]


def embedding_bytes(rows: int, dim: int) -> int:
    """Bytes on disk of the float16 shards."""
    return rows * dim * FLOAT16
