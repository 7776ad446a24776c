"""The plan's bytes against real files, its estimates against the stated laws, and what it advises."""

from __future__ import annotations

from math import log2
from pathlib import Path
from typing import get_args

import faiss
import pytest
from vectors import embeddings_of, topical

from parallelsearch.config import INDEX_KINDS, IndexConfig
from parallelsearch.retrieval.encoding.embeddings import Embeddings
from parallelsearch.retrieval.indexes.building import build_index
from parallelsearch.retrieval.indexes.calibration import calibration, estimate
from parallelsearch.retrieval.indexes.plan import index_bytes, index_needs, smaller_kind

KINDS = get_args(INDEX_KINDS)
GIB = 2**30
# Parameters that are quick to build with; the formulas hold for all.
QUICK = {
    "ivf_flat": {"nlist": 50},
    "ivf_pq": {"nlist": 50, "m": 4},
    "hnsw": {"M": 6, "efConstruction": 12},
}


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Embeddings:
    return embeddings_of(topical(20_000, 64), tmp_path_factory.mktemp("wide"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_planned_size_is_the_size_of_the_file(wide: Embeddings, tmp_path: Path, kind: str) -> None:
    built = build_index(IndexConfig(kind=kind, parameters=QUICK.get(kind, {})), wide)
    faiss.write_index(built.index, str(tmp_path / kind))
    planned = index_bytes(kind, len(wide), wide.dim, built.parameters)
    assert planned == pytest.approx((tmp_path / kind).stat().st_size, rel=0.02)


def test_the_papers_index_needs_what_users_measured() -> None:
    """21,015,324 vectors of 768: users report 60 to 62 GB for the flat one; M of 32 gives HNSW 64 links a vector."""
    rows, dim = 21_015_324, 768
    needs = {need.kind: need for need in index_needs(rows, dim)}
    assert list(needs) == list(KINDS)
    assert needs["flat"].bytes == rows * dim * 4 and 60 <= needs["flat"].bytes / GIB <= 65
    assert needs["flat_fp16"].bytes * 2 == needs["flat"].bytes
    assert needs["flat_int8"].bytes == pytest.approx(needs["flat"].bytes / 4, rel=1e-4)
    assert needs["hnsw"].bytes - needs["flat"].bytes == pytest.approx(rows * (64 * 4 + 32 / 31 * 4 + 12), rel=0.001)
    # 192 bytes of code and 8 of id a vector; 18,336 centroids of 768 numbers and 8 bytes, 256 of codes, 768 * 768
    assert needs["ivf_pq"].bytes == rows * 200 + 18_336 * (768 * 4 + 8) + (256 + 768) * 768 * 4
    assert all(need.build_bytes > need.bytes for need in needs.values())


def test_a_kind_that_cannot_be_built_is_left_out() -> None:
    assert [need.kind for need in index_needs(100, 24)] == [kind for kind in KINDS if kind != "ivf_pq"]


@pytest.mark.parametrize("kind", KINDS)
def test_estimates_at_the_measured_size_are_the_measured_figures(kind: str) -> None:
    measured = calibration()
    found = measured["kinds"][kind]
    here = estimate(kind, found["rows"], measured["dim"], found["parameters"])
    assert here.build_seconds == pytest.approx(found["build_seconds"])
    assert here.queries_per_second == pytest.approx(found["single_per_second"])
    assert here.batch_queries_per_second == pytest.approx(found["batch_per_second"])
    assert (here.recall_at_3, here.recall_at_10) == (found["recall_at_3"], found["recall_at_10"])


def test_estimates_follow_the_stated_laws() -> None:
    """Twice the vectors: half the searches of a flat index; HNSW's grow with the logarithm; IVF's with the lists."""

    def ratio(kind: str, rows: tuple[int, int], *parameters: dict[str, int]) -> float:
        first, second = (estimate(kind, n, 384, p) for n, p in zip(rows, parameters, strict=True))
        return first.queries_per_second / second.queries_per_second

    assert ratio("flat", (10**6, 2 * 10**6), {}, {}) == pytest.approx(2)
    hnsw = {"M": 16, "efSearch": 64, "efConstruction": 40}
    assert ratio("hnsw", (10**6, 10**7), hnsw, hnsw) == pytest.approx(log2(10**7) / log2(10**6))
    assert ratio("hnsw", (10**6, 10**6), hnsw, {**hnsw, "efSearch": 128}) == pytest.approx(2)
    few, many = {"nlist": 1000, "nprobe": 10}, {"nlist": 1000, "nprobe": 110}
    assert ratio("ivf_flat", (10**6, 10**6), few, many) == pytest.approx((1000 + 110_000) / (1000 + 10_000))
    flat = estimate("flat", 10**6, 768, {}).build_seconds / estimate("flat", 10**6, 384, {}).build_seconds
    assert flat == pytest.approx(2)


def test_the_advice_is_the_best_kind_that_fits() -> None:
    rows, dim = 21_015_324, 768
    assert "set index.kind to 'flat_fp16'" in smaller_kind(rows, dim, 40 * GIB, build=False)
    assert "set index.kind to 'flat_int8', which needs 15.0" in smaller_kind(rows, dim, 20 * GIB, build=False)
    assert "set index.kind to 'ivf_pq', which needs 3.9" in smaller_kind(rows, dim, 8 * GIB, build=False)
    assert "the smallest kind, 'ivf_pq', needs 3.9" in smaller_kind(rows, dim, GIB, build=False)
