"""Every kind of index against brute force in NumPy: what it finds, its parameters, its bytes and its memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import faiss
import numpy as np
import pytest
from vectors import brute_force, embeddings_of, topical

from parallelsearch.config import INDEX_KINDS, IndexConfig
from parallelsearch.errors import ConfigError
from parallelsearch.retrieval.encoding.embeddings import Embeddings
from parallelsearch.retrieval.indexes.building import build_index, training_count, training_rows
from parallelsearch.retrieval.indexes.kinds import complete_parameters
from parallelsearch.retrieval.indexes.quality import exact_neighbours, measure, recall

KINDS = get_args(INDEX_KINDS)
# The least share of true neighbours among ten. ivf_pq rounds 24 values to 6 bytes.
LEAST = {"flat": 1.0, "flat_fp16": 1.0, "flat_int8": 0.95, "ivf_flat": 0.8, "ivf_pq": 0.35, "hnsw": 0.95}


def stored(embeddings: Embeddings) -> np.ndarray:
    return np.concatenate(list(embeddings.blocks()))


def test_exact_neighbours_over_blocks_agree_with_brute_force(clustered: Embeddings) -> None:
    queries = np.random.default_rng(1).normal(size=(20, clustered.dim)).astype(np.float32)
    scores, ids = exact_neighbours(clustered, queries, 10)
    expected_scores, expected_ids = brute_force(stored(clustered), queries, 10)
    assert np.array_equal(ids, expected_ids)
    assert np.allclose(scores, expected_scores, atol=1e-5)


def test_vectors_are_taken_in_the_order_of_the_ids(clustered: Embeddings) -> None:
    rows = np.array([2999, 0, 1000, 999, 1000, 2000, 1])
    assert np.array_equal(clustered.take(rows), stored(clustered)[rows])
    with pytest.raises(IndexError):
        clustered.take(np.array([3000]))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_finds_what_brute_force_finds_and_says_how_much_of_it(clustered: Embeddings, kind: str) -> None:
    index = build_index(IndexConfig(kind=kind), clustered, block_rows=700).index
    assert index.ntotal == len(clustered) and index.metric_type == faiss.METRIC_INNER_PRODUCT
    vectors, queries = stored(clustered), np.random.default_rng(2).normal(size=(50, clustered.dim)).astype(np.float32)
    _, ids = index.search(queries, 10)
    _, expected = brute_force(vectors, queries, 10)
    shared = [len(set(a) & set(b)) / 10 for a, b in zip(ids.tolist(), expected.tolist(), strict=True)]
    assert np.mean(shared) >= LEAST[kind]

    quality = measure(index, clustered)
    sample = np.random.default_rng(0).choice(len(vectors), 200, replace=False)
    _, found = index.search(vectors[sample], 10)
    _, true = brute_force(vectors, vectors[sample], 10)
    for at in (3, 10):
        of_all = [len(set(a[:at]) & set(b[:at])) / at for a, b in zip(found.tolist(), true.tolist(), strict=True)]
        assert quality[f"recall_at_{at}"] == pytest.approx(np.mean(of_all), abs=0.002)  # ties count alike
    assert (quality["recall_at"], quality["recall"]) == (10, quality["recall_at_10"])
    assert quality["self_retrieval"] == pytest.approx((found[:, 0] == sample).mean(), abs=0.01)


def test_recall_counts_ties_alike_and_missing_passages_as_lost(tmp_path: Path) -> None:
    """Four passages, the third and fourth alike: either of them fills the third place."""
    vectors = np.array([[1, 0], [0.8, 0.6], [0.6, 0.8], [0.6, 0.8]])
    embeddings = embeddings_of(vectors, tmp_path, shards=1)
    query = np.array([[1.0, 0.0]], dtype=np.float32)
    scores, _ = exact_neighbours(embeddings, query, 3)
    assert recall(embeddings, query, scores, np.array([[0, 1, 3]]), 3) == 1
    assert recall(embeddings, query, scores, np.array([[0, 3, -1]]), 3) == pytest.approx(2 / 3)
    assert recall(embeddings, query, scores, np.array([[3, 0, 1]]), 1) == 0


def test_search_parameters_act_and_the_measured_recall_shows_it(clustered: Embeddings) -> None:
    def measured(kind: str, **parameters: int) -> float:
        built = build_index(IndexConfig(kind=kind, parameters=parameters), clustered)
        assert all(built.parameters[name] == value for name, value in parameters.items())
        return measure(built.index, clustered)["recall_at_10"]

    one, all_lists = measured("ivf_flat", nlist=60, nprobe=1), measured("ivf_flat", nlist=60, nprobe=60)
    assert one < 0.98 and all_lists == 1.0
    assert measured("hnsw", M=4, efConstruction=8, efSearch=1) < measured("hnsw", M=32, efSearch=256)
    assert measured("ivf_pq", m=2, nlist=20) < LEAST["ivf_pq"]


def test_build_parameters_are_in_the_index(clustered: Embeddings) -> None:
    graph = build_index(IndexConfig(kind="hnsw", parameters={"M": 5, "efConstruction": 9}), clustered).index
    hnsw = graph.hnsw
    assert (hnsw.nb_neighbors(0), hnsw.nb_neighbors(1), hnsw.efConstruction) == (10, 5, 9)
    built = build_index(IndexConfig(kind="ivf_pq", parameters={"m": 3, "nlist": 7, "nprobe": 2}), clustered)
    ivf = built.index
    inner = faiss.downcast_index(faiss.extract_index_ivf(ivf))
    assert (inner.pq.M, inner.pq.nbits, inner.nlist, inner.nprobe, inner.code_size) == (3, 8, 7, 2, 3)
    assert isinstance(faiss.downcast_VectorTransform(ivf.chain.at(0)), faiss.OPQMatrix)


@pytest.mark.parametrize("kind", KINDS)
def test_two_builds_give_the_same_bytes_whatever_the_blocks_and_threads(clustered: Embeddings, kind: str) -> None:
    config = IndexConfig(kind=kind, parameters={"m": 2} if kind == "ivf_pq" else {})
    before = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(1)
        once = faiss.serialize_index(build_index(config, clustered, block_rows=700).index)
        faiss.omp_set_num_threads(3)
        again = faiss.serialize_index(build_index(config, clustered, block_rows=700).index)
        assert faiss.omp_get_max_threads() == 3
    finally:
        faiss.omp_set_num_threads(before)
    assert once.tobytes() == again.tobytes()


def test_training_vectors_come_from_the_whole_corpus() -> None:
    count = training_count("ivf_flat", 100_000, {"nlist": 100})
    rows = training_rows(100_000, count)
    assert len(set(rows.tolist())) == count == 6400 and np.all(np.diff(rows) > 0)
    quarters = np.histogram(rows, bins=4, range=(0, 100_000))[0]
    assert quarters.min() > 1500 and np.array_equal(rows, training_rows(100_000, count))
    assert training_count("hnsw", 100_000, {}) == 0 and training_count("ivf_pq", 500, {"nlist": 100}) == 500


PEAK = """
import sys
from pathlib import Path
import faiss, numpy as np
from parallelsearch.config import IndexConfig
from parallelsearch.retrieval.encoding.embeddings import Embeddings
from parallelsearch.retrieval.indexes.building import build_index
faiss.IndexFlatIP(8).add(np.ones((1, 8), np.float32))
embeddings = Embeddings(Path(sys.argv[2]))
peak = lambda: next(
    int(line.split()[1]) * 1024 for line in Path("/proc/self/status").open() if line.startswith("VmHWM")
)
before = peak()
build_index(IndexConfig(kind=sys.argv[1], parameters=eval(sys.argv[3])), embeddings, block_rows=4096)
print(peak() - before)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Embeddings:
    return embeddings_of(topical(150_000, 128), tmp_path_factory.mktemp("large"))


@pytest.mark.parametrize(
    ("kind", "bytes_per_value", "parameters"), [("flat", 4, {}), ("flat_int8", 1, {}), ("ivf_flat", 4, {"nlist": 400})]
)
def test_memory_of_a_build_is_the_index_and_a_block(
    large: Embeddings, kind: str, bytes_per_value: int, parameters: dict[str, int]
) -> None:
    """150,000 vectors of 128: the index, the float16 file that is read (its pages count), and little else.

    An index whose array grows as vectors come holds old and new copy at once: half as much again.
    """
    rows, dim = len(large), large.dim
    command = [sys.executable, "-c", PEAK, kind, str(large.folder), repr(parameters)]
    peak = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    training = training_count(kind, rows, parameters) * dim * 4
    block = 4096 * dim * 4
    assert peak < 1.05 * rows * (dim * bytes_per_value + 16) + rows * dim * 2 + training + 4 * block + 12 * 2**20


@pytest.mark.parametrize(
    ("kind", "parameters", "fault"),
    [
        ("flat", {"nprobe": 4}, "'nprobe', unknown to kind 'flat'; allowed: none"),
        ("ivf_flat", {"efSearch": 4}, "'efSearch', unknown to kind 'ivf_flat'; allowed: nlist, nprobe"),
        ("hnsw", {"M": 1}, "index.parameters.M is 1; give a number of at least 2"),
        ("ivf_pq", {"m": 7}, "m is 7, which does not divide the 24 values of a vector; take one of 1, 2, 3, 4, 6, 8"),
        ("ivf_pq", {}, "trained on at least 256 passages, but the corpus has 100; take 'flat'"),
    ],
)
def test_impossible_parameters_are_refused(kind: str, parameters: dict[str, int], fault: str) -> None:
    with pytest.raises(ConfigError) as raised:
        complete_parameters(IndexConfig(kind=kind, parameters=parameters), 100, 24)
    assert fault in str(raised.value) and str(raised.value).count("\n") == 0


def test_defaults_fit_the_number_of_rows_and_the_size_of_a_vector() -> None:
    assert complete_parameters(IndexConfig(kind="ivf_flat"), 1_000_000, 24) == {"nlist": 4000, "nprobe": 64}
    assert complete_parameters(IndexConfig(kind="ivf_flat"), 5, 24) == {"nlist": 5, "nprobe": 5}
    assert complete_parameters(IndexConfig(kind="ivf_pq"), 1_000_000, 768)["m"] == 192
