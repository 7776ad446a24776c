"""Searching a stored index of every kind: scores, ties, and one copy in memory for all who open it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import faiss
import numpy as np
import pytest
from conftest import PASSAGES, TWINS
from small_study import Study

from parallelsearch.config import INDEX_KINDS, IndexConfig
from parallelsearch.files import MANIFEST, read_json
from parallelsearch.retrieval.encoding.embeddings import Embeddings
from parallelsearch.retrieval.indexes.stored_index import StoredIndex, write_index

KINDS = get_args(INDEX_KINDS)
PARAMETERS = {
    "ivf_flat": {"nlist": 10, "nprobe": 10},
    "ivf_pq": {"nlist": 10, "nprobe": 10, "m": 4},
    "hnsw": {"M": 16, "efConstruction": 100, "efSearch": 300},
}
# What rounding a vector costs a score: nothing, 8 bits a value, or 4 bytes for 384 values.
ROUNDING = {"flat_int8": 0.01, "ivf_pq": 0.8}


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, larger_study: Study, monkeypatch_module: pytest.MonkeyPatch) -> Path:
    kind = request.param
    if kind == "ivf_pq":  # codes of 4 bytes are too coarse for every passage to find itself
        monkeypatch_module.setattr("parallelsearch.retrieval.indexes.stored_index.SELF_RETRIEVAL_FLOOR", 0.0)
    config = IndexConfig(kind=kind, parameters=PARAMETERS.get(kind, {}))
    write_index(larger_study.corpus, larger_study.embeddings, larger_study.root / f"index.{kind}", config)
    return larger_study.root / f"index.{kind}"


@pytest.fixture(scope="module")
def monkeypatch_module() -> pytest.MonkeyPatch:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def test_scores_are_inner_products_with_what_the_index_stores(folder: Path, larger_study: Study) -> None:
    index = StoredIndex(folder, shared=False)
    vectors = np.concatenate(list(Embeddings(larger_study.embeddings).blocks()))
    queries = vectors[[3, 50, 411]] + np.float32(0.01)
    scores, ids = index.search(queries, 10)
    assert ids.shape == (3, 10) and np.all(ids >= 0) and np.all(np.diff(scores, axis=1) <= 0)
    if index.kind in ("ivf_flat", "ivf_pq"):
        faiss.extract_index_ivf(index.index).make_direct_map()
    stored = np.stack([index.index.reconstruct(int(i)) for i in ids.ravel()]).reshape(3, 10, -1)
    assert np.allclose(scores, np.einsum("nkd,nd->nk", stored.astype(float), queries.astype(float)), atol=1e-6)
    true = np.einsum("nkd,nd->nk", vectors[ids].astype(float), queries.astype(float))
    assert np.abs(scores - true).max() <= ROUNDING.get(index.kind, 1e-6)


def test_equal_vectors_tie_and_come_in_the_order_of_their_ids(folder: Path, larger_study: Study) -> None:
    index = StoredIndex(folder)
    query = Embeddings(larger_study.embeddings).take(np.array([TWINS[0]]))
    for size in (1, 2, 5):
        scores, ids = index.search(np.repeat(query, size, axis=0), 10)
        for row_scores, row in zip(scores, ids.tolist(), strict=True):
            place = row.index(TWINS[0])
            assert row[place + 1 :].count(TWINS[1]) == 1
            assert row_scores[place] == row_scores[row.index(TWINS[1])]


def test_a_memory_mapped_index_finds_the_same(folder: Path, larger_study: Study) -> None:
    queries = Embeddings(larger_study.embeddings).take(np.arange(0, PASSAGES, 37))
    shared, own = (StoredIndex(folder, shared=mapped).search(queries, 7) for mapped in (True, False))
    assert np.array_equal(shared[1], own[1]) and np.array_equal(shared[0], own[0])


def test_the_manifest_names_where_it_is_searched_and_a_rebuild_is_the_same(folder: Path, larger_study: Study) -> None:
    manifest, content = read_json(folder / MANIFEST), (folder / "index.faiss").read_bytes()
    abandoned = folder / ".index.faiss.12345678.partial"
    abandoned.write_bytes(b"half an index")
    config = IndexConfig(kind=manifest["kind"], parameters=manifest["parameters"])
    assert write_index(larger_study.corpus, larger_study.embeddings, folder, config) == manifest
    assert (folder / "index.faiss").read_bytes() == content and not abandoned.exists()
    assert manifest["device"] == "cpu"


READER = """
import sys
from pathlib import Path
import faiss, numpy as np
file, flags = sys.argv[1], int(sys.argv[2])
index = faiss.read_index(file, flags)
index.search(np.random.default_rng(0).normal(size=(3, index.d)).astype(np.float32), 5)
print("ready", flush=True)
sys.stdin.read()
"""


def memory(process: subprocess.Popen, file: Path) -> tuple[int, int]:
    """Bytes of a process' own (anonymous) memory, and its proportional share of the pages of `file`."""
    own = share = 0
    of_file = False
    for line in Path(f"/proc/{process.pid}/smaps").read_text().splitlines():
        head = line.split()
        if "-" in head[0] and not head[0].endswith(":"):
            of_file = head[-1] == str(file)
        elif head[0] == "Anonymous:":
            own += int(head[1]) * 1024
        elif head[0] == "Pss:" and of_file:
            share += int(head[1]) * 1024
    return own, share


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_two_processes_hold_a_memory_mapped_index_once(tmp_path: Path, kind: str) -> None:
    """80 MB of vectors: each of two readers answers for half of them, and has as little of its own as without them."""
    vectors = np.random.default_rng(0).normal(size=(20_000, 1024) if kind == "flat" else (2_000, 8192))
    index = faiss.IndexFlatIP(1024) if kind == "flat" else faiss.IndexHNSWFlat(8192, 4, faiss.METRIC_INNER_PRODUCT)
    index.add(vectors.astype(np.float32))
    file = tmp_path / "index.faiss"
    faiss.write_index(index, str(file))
    size = file.stat().st_size
    found = {}
    for name, flags in (("own", 0), ("shared", faiss.IO_FLAG_MMAP_IFC)):
        command = [sys.executable, "-c", READER, str(file), str(flags)]
        readers = [subprocess.Popen(command, stdin=-1, stdout=-1, text=True) for _ in range(2)]
        assert all(reader.stdout.readline() == "ready\n" for reader in readers)
        found[name] = [memory(reader, file) for reader in readers]
        for reader in readers:
            reader.communicate()
    for (own, _), (left, share) in zip(found["own"], found["shared"], strict=True):
        assert own - left > 0.9 * size
        assert share < 0.6 * size
    if kind == "flat":
        assert sum(share for _, share in found["shared"]) > 0.9 * size  # a flat search reads all of it
