"""The kinds of FAISS index and their parameters. All of them rank by inner product."""

from __future__ import annotations

from typing import Any

from parallelsearch.config import IndexConfig
from parallelsearch.errors import ConfigError

# Build and search parameters of each kind with their defaults.
# nlist 0: 4 * sqrt(rows), as FAISS advises. m 0: one byte for every 4 values. threads: of HNSW's building, where more
# than one is faster and no two builds are alike.
DEFAULTS: dict[str, dict[str, int]] = {
    "flat": {},
    "flat_fp16": {},
    "flat_int8": {},
    "ivf_flat": {"nlist": 0, "nprobe": 64},
    "ivf_pq": {"nlist": 0, "nprobe": 64, "m": 0},
    "hnsw": {"M": 32, "efConstruction": 100, "efSearch": 128, "threads": 1},
}
EXACT_KINDS = ("flat", "flat_fp16")  # embeddings are stored in float16, so flat_fp16 loses nothing
IVF_KINDS = ("ivf_flat", "ivf_pq")
LEAST = {"nlist": 0, "m": 0, "M": 2}  # of the other parameters: 1
PQ_CENTROIDS = 256  # of each sub-quantizer: one byte
PQ_VALUES_PER_BYTE = 4
# FAISS compares so many queries or more with a matrix product. Its own value of 128,000 (1.15) leaves batches of a
# hundred to loops that took ten times as long here; below 16 queries the loops are the faster ones.
LEAST_QUERIES_OF_A_PRODUCT = 16


def complete_parameters(config: IndexConfig, rows: int, dim: int) -> dict[str, int]:
    """The parameters of the kind for `rows` vectors of `dim` values, defaults filled in.

    nlist is at most `rows` and nprobe at most nlist, so that one configuration serves corpora of every size.
    Unknown or impossible parameters are a ConfigError.
    """
    kind, known = config.kind, DEFAULTS[config.kind]
    for name, value in config.parameters.items():
        if name not in known:
            allowed = ", ".join(known) or "none"
            raise ConfigError(f"index.parameters has '{name}', unknown to kind '{kind}'; allowed: {allowed}.")
        if value < (least := LEAST.get(name, 1)):
            raise ConfigError(f"index.parameters.{name} is {value}; give a number of at least {least}.")
    parameters = {**known, **config.parameters}
    if kind in IVF_KINDS:
        parameters["nlist"] = min(parameters["nlist"] or max(int(4 * rows**0.5), 1), rows)
        parameters["nprobe"] = min(parameters["nprobe"], parameters["nlist"])
    if kind == "ivf_pq":
        parameters["m"] = parameters["m"] or _bytes_per_vector(dim)
        if dim % parameters["m"]:
            raise ConfigError(
                f"index.parameters.m is {parameters['m']}, which does not divide the {dim} values of a vector;"
                f" take one of {', '.join(map(str, _divisors(dim)))}."
            )
        if rows < PQ_CENTROIDS:
            raise ConfigError(
                f"index.kind is 'ivf_pq', whose codes are trained on at least {PQ_CENTROIDS} passages, but the corpus"
                f" has {rows}; take 'flat'."
            )
    return parameters


def apply_search_parameters(index: Any, kind: str, parameters: dict[str, int]) -> None:
    """Sets nprobe or efSearch: FAISS keeps them in the object, and its own defaults (1 and 16) lose many passages.

    And, for all indexes of this process, from how many queries on vectors are compared by a matrix product.
    """
    import faiss

    faiss.cvar.distance_compute_blas_threshold = LEAST_QUERIES_OF_A_PRODUCT
    if kind in IVF_KINDS:
        faiss.extract_index_ivf(index).nprobe = parameters["nprobe"]
    if kind == "hnsw":
        index.hnsw.efSearch = parameters["efSearch"]


def _bytes_per_vector(dim: int) -> int:
    """The largest divisor of `dim` that is at most a quarter of it."""
    return max((m for m in _divisors(dim) if m * PQ_VALUES_PER_BYTE <= dim), default=1)


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]
