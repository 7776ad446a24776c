"""How long an index takes to build and to search, estimated from what benchmarks/bench_index.py measured.

calibration.yaml holds the measured figures of one machine and one thread, for each kind at some number of vectors. An
estimate is the measured time of the kind multiplied by the ratio of two amounts of work, in multiplications:

searching   flat, flat_fp16, flat_int8   rows * dim
            ivf_flat                     dim * (nlist + nprobe * rows / nlist)
            ivf_pq                       dim * (nlist + 256) + m * nprobe * rows / nlist
            hnsw                         efSearch * M * log2(rows) * dim
building    flat, flat_fp16, flat_int8   rows * dim
            ivf_flat                     nlist * dim * (rows + 10 * training vectors)      10 rounds of k-means
            ivf_pq                       that + 6 * 256 * dim * (rows + 2,000,000)         training and giving codes
            hnsw                         efConstruction * M * log2(rows) * dim * rows

Recall is the measured one: it falls slowly as rows grow, unless nprobe or efSearch grow with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import log2
from pathlib import Path
from typing import Any

import yaml

from parallelsearch.retrieval.indexes.building import training_count
from parallelsearch.retrieval.indexes.kinds import IVF_KINDS, PQ_CENTROIDS

CALIBRATION = Path(__file__).with_name("calibration.yaml")
KMEANS_ROUNDS = 10
CODE_TRAINING_ROWS = 2_000_000  # vectors times rounds of the k-means that make the rotation and the codes
CODE_COST = 6  # distances between the few values of one code take so much longer, value by value


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of one kind at one size, in one thread; queries are searched for 10 passages each."""

    build_seconds: float
    queries_per_second: float  # one query at a time
    batch_queries_per_second: float  # 64 at a time
    recall_at_3: float
    recall_at_10: float


@cache
def calibration() -> dict[str, Any]:
    """The measured figures: processor, threads, date, dim, and for each kind rows, parameters, times and recall."""
    values: dict[str, Any] = yaml.safe_load(CALIBRATION.read_text(encoding="utf-8"))
    return values


def estimate(kind: str, rows: int, dim: int, parameters: dict[str, int]) -> Estimate:
    """Time and recall of an index of `rows` vectors of `dim` values with these (complete) parameters."""
    measured = calibration()
    found = measured["kinds"][kind]
    at = (kind, found["rows"], measured["dim"], found["parameters"])
    search = search_work(kind, rows, dim, parameters) / search_work(*at)
    build = build_work(kind, rows, dim, parameters) / build_work(*at)
    return Estimate(
        found["build_seconds"] * build,
        found["single_per_second"] / search,
        found["batch_per_second"] / search,
        found["recall_at_3"],
        found["recall_at_10"],
    )


def search_work(kind: str, rows: int, dim: int, parameters: dict[str, int]) -> float:
    """Multiplications of one search (of `hnsw`: a number in proportion to them)."""
    if kind == "hnsw":
        return parameters["efSearch"] * parameters["M"] * log2(max(rows, 2)) * dim
    if kind not in IVF_KINDS:
        return rows * dim
    lists, scanned = parameters["nlist"], parameters["nprobe"] * rows / parameters["nlist"]
    if kind == "ivf_pq":
        return dim * (lists + PQ_CENTROIDS) + parameters["m"] * scanned
    return dim * (lists + scanned)


def build_work(kind: str, rows: int, dim: int, parameters: dict[str, int]) -> float:
    """Multiplications of building the index (of `hnsw`: a number in proportion to them)."""
    if kind == "hnsw":
        return parameters["efConstruction"] * parameters["M"] * log2(max(rows, 2)) * dim * rows
    if kind not in IVF_KINDS:
        return rows * dim
    work = parameters["nlist"] * dim * (rows + KMEANS_ROUNDS * training_count(kind, rows, parameters))
    if kind == "ivf_pq":
        work += CODE_COST * PQ_CENTROIDS * dim * (rows + CODE_TRAINING_ROWS)
    return work
