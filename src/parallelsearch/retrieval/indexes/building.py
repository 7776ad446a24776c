"""An index trained on a sample of the whole corpus and filled block by block.

In memory stand the index, the training vectors while it is trained, and one block of embeddings. The same embeddings
give the same bytes: samples and centroids are seeded, and FAISS' k-means and its adding to flat and IVF indexes do not
depend on the number of threads. The rotation of ivf_pq does (it comes from sums over all vectors, which threads split),
so one thread makes it; and HNSW does (its threads link vectors in the order in which they come to it), so one thread
builds it unless the configuration asks for more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from parallelsearch.config import IndexConfig
from parallelsearch.retrieval.indexes.kinds import IVF_KINDS, apply_search_parameters, complete_parameters

if TYPE_CHECKING:
    from parallelsearch.retrieval.encoding.embeddings import Embeddings

BLOCK_ROWS = 65_536
TRAINING_SEED = 0
TRAINING_VECTORS_PER_LIST = 64
TRAINING_VECTORS = 65_536  # at least so many for codes of 8 bits (256 centroids of 256 vectors each)
# FAISS' own numbers (50 rounds, 40 iterations first, 25 for the codes) take six times as long and find no more.
OPQ_ROUNDS, OPQ_FIRST_ITERATIONS, OPQ_VECTORS, PQ_ITERATIONS = 5, 10, 32_768, 15
HNSW_ROOM = 1.02  # numbers of levels are drawn: a little more than the expected number of links


@dataclass(frozen=True, slots=True)
class BuiltIndex:
    """A filled FAISS index and the parameters it was built with (defaults filled in)."""

    index: Any
    parameters: dict[str, int]


def build_index(config: IndexConfig, embeddings: Embeddings, block_rows: int = BLOCK_ROWS) -> BuiltIndex:
    """Trains the index where its kind needs it and adds every vector; ids are row numbers of the corpus."""
    kind, rows = config.kind, len(embeddings)
    parameters = complete_parameters(config, rows, embeddings.dim)
    index = empty_index(kind, embeddings.dim, parameters)
    if not index.is_trained:
        _train(index, kind, embeddings.take(training_rows(rows, training_count(kind, rows, parameters))))
    with _threads(parameters.get("threads")):
        if kind in IVF_KINDS:
            _fill_lists(index, embeddings, block_rows)
        else:
            _reserve(index, kind, rows, parameters)
            for block in embeddings.blocks(block_rows):
                index.add(block)
    apply_search_parameters(index, kind, parameters)
    return BuiltIndex(index, parameters)


def empty_index(kind: str, dim: int, parameters: dict[str, int]) -> Any:
    """An index of the kind that knows no vector yet; quantisers are untrained."""
    import faiss

    index: Any
    quantizer, metric = faiss.ScalarQuantizer, faiss.METRIC_INNER_PRODUCT
    if kind == "flat":
        return faiss.IndexFlatIP(dim)
    if kind == "flat_fp16":
        return faiss.IndexScalarQuantizer(dim, quantizer.QT_fp16, metric)
    if kind == "flat_int8":
        return faiss.IndexScalarQuantizer(dim, quantizer.QT_8bit, metric)
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(dim, parameters["M"], metric)
        index.hnsw.efConstruction = parameters["efConstruction"]
        return index
    if kind == "ivf_flat":
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, parameters["nlist"], metric)
    else:
        index = faiss.IndexIVFPQ(faiss.IndexFlatIP(dim), dim, parameters["nlist"], parameters["m"], 8, metric)
    index.cp.seed = TRAINING_SEED
    index.cp.min_points_per_centroid = 1
    if kind == "ivf_flat":
        return index
    index.pq.cp.min_points_per_centroid = 1
    index.pq.cp.niter = PQ_ITERATIONS
    rotation = faiss.OPQMatrix(dim, parameters["m"])
    rotation.niter, rotation.niter_pq_0, rotation.max_train_points = OPQ_ROUNDS, OPQ_FIRST_ITERATIONS, OPQ_VECTORS
    return faiss.IndexPreTransform(rotation, index)


def training_count(kind: str, rows: int, parameters: dict[str, int]) -> int:
    """How many vectors train the index; 0 for kinds that need no training."""
    if kind in ("flat", "flat_fp16", "hnsw"):
        return 0
    wanted = parameters.get("nlist", 0) * TRAINING_VECTORS_PER_LIST
    return min(rows, wanted if kind == "ivf_flat" else max(wanted, TRAINING_VECTORS))


def training_rows(rows: int, count: int) -> np.ndarray:
    """Ascending ids of `count` passages: a seeded sample of the whole corpus."""
    return np.sort(np.random.default_rng(TRAINING_SEED).choice(rows, count, replace=False))


def _train(index: Any, kind: str, vectors: np.ndarray) -> None:
    import faiss

    if kind != "ivf_pq":
        index.train(vectors)
        return
    rotation = faiss.downcast_VectorTransform(index.chain.at(0))
    with _threads(1):
        rotation.train(vectors)
    faiss.downcast_index(index.index).train(_rotated(rotation, vectors))
    index.is_trained = True


def _rotated(rotation: Any, vectors: np.ndarray) -> np.ndarray:
    """In one thread: on some processors a matrix product in more of them ends in other last bits."""
    with _threads(1):
        return np.ascontiguousarray(rotation.apply(vectors))


def _reserve(index: Any, kind: str, rows: int, parameters: dict[str, int]) -> None:
    """Room for all rows at once: an array that grows is copied, and takes three times its size while it is."""
    import faiss

    flat: Any = faiss.downcast_index(index.storage) if kind == "hnsw" else index
    arrays, sizes = [flat.codes], [rows * flat.code_size]
    if kind == "hnsw":
        arrays.append(index.hnsw.neighbors)
        sizes.append(int(rows * (2 + 1 / (parameters["M"] - 1)) * parameters["M"] * HNSW_ROOM))
    for array, size in zip(arrays, sizes, strict=True):
        array.resize(size)
        array.resize(0)  # the memory stays


def _fill_lists(index: Any, embeddings: Embeddings, block_rows: int) -> None:
    """Adds to an IVF index in two passes: the first finds each vector's list, so that no list has to grow.

    Lists that grow leave holes of half their size in memory.
    """
    import faiss

    lists: Any = faiss.downcast_index(faiss.extract_index_ivf(index))
    rotation = faiss.downcast_VectorTransform(index.chain.at(0)) if lists.this != index.this else None
    blocks = partial(_rotated_blocks, embeddings, rotation, block_rows)
    owner = np.concatenate([lists.quantizer.search(block, 1)[1][:, 0] for block in blocks()])
    for number, length in enumerate(np.bincount(owner, minlength=lists.nlist).tolist()):
        lists.invlists.resize(number, length)
        lists.invlists.resize(number, 0)  # the memory stays
    first = 0
    for block in blocks():
        owners = np.ascontiguousarray(owner[first : first + len(block)])
        lists.add_core(len(block), faiss.swig_ptr(block), None, faiss.swig_ptr(owners))
        first += len(block)
    index.ntotal = lists.ntotal


def _rotated_blocks(embeddings: Embeddings, rotation: Any, block_rows: int) -> Iterator[np.ndarray]:
    for block in embeddings.blocks(block_rows):
        yield np.ascontiguousarray(block) if rotation is None else _rotated(rotation, block)


@contextmanager
def _threads(number: int | None) -> Iterator[None]:
    """FAISS in so many threads inside the block; None: as many as before."""
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(number or before)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
