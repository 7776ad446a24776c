"""The way to the GPUs, as far as it can be gone without one."""

from __future__ import annotations

from importlib.metadata import version
from types import SimpleNamespace

import faiss
import numpy as np
import pytest
from small_study import Study

from parallelsearch.config import IndexConfig
from parallelsearch.errors import ConfigError
from parallelsearch.files import MANIFEST, read_json, write_json
from parallelsearch.retrieval.encoding.embeddings import Embeddings
from parallelsearch.retrieval.indexes import gpus, stored_index
from parallelsearch.retrieval.indexes.stored_index import StoredIndex, write_index

needs_cpu_build = pytest.mark.skipif(hasattr(faiss, "StandardGpuResources"), reason="this FAISS has GPU support")


@needs_cpu_build
def test_a_faiss_without_gpu_support_is_named(own_study: Study) -> None:
    expected = f"the installed faiss-cpu {version('faiss-cpu')} has no GPU support; install faiss-gpu"
    with pytest.raises(ConfigError, match=expected) as raised:
        StoredIndex(own_study.index, device="cuda")
    assert str(raised.value).count("\n") == 0
    manifest = read_json(own_study.index / MANIFEST)
    write_json(own_study.index / MANIFEST, {**manifest, "device": "cuda"})
    with pytest.raises(ConfigError, match=expected):
        StoredIndex(own_study.index)
    assert StoredIndex(own_study.index, device="cpu").index.ntotal == 43


def test_no_gpu_in_sight() -> None:
    build = SimpleNamespace(StandardGpuResources=object, get_num_gpus=lambda: 0, __version__="1.15.1")
    with pytest.raises(ConfigError, match="FAISS finds no GPU here"):
        gpus.require_gpu_build(build)


def test_the_options_are_those_that_faiss_documents() -> None:
    """GpuClonerOptions.h: `useFloat16` of GpuClonerOptions, `shard` of GpuMultipleClonerOptions."""

    class GpuMultipleClonerOptions:
        __slots__ = ("common_ivf_quantizer", "shard", "shard_type", "useFloat16", "useFloat16CoarseQuantizer")

    options = gpus.cloner_options(SimpleNamespace(GpuMultipleClonerOptions=GpuMultipleClonerOptions))
    assert (options.shard, options.useFloat16) == (True, True)


@pytest.mark.parametrize(
    ("kind", "parameters", "fault"),
    [
        ("hnsw", {}, "cannot search index.kind 'hnsw' on a GPU; take 'ivf_flat'"),
        ("flat_int8", {}, "cannot search index.kind 'flat_int8' on a GPU; take 'flat'"),
        ("ivf_pq", {"m": 6}, "index.parameters.m is 6, but FAISS on a GPU takes 1, 2, 3, 4, 8"),
    ],
)
def test_what_a_gpu_cannot_search_is_not_built_for_one(
    larger_study: Study, tmp_path, kind: str, parameters: dict[str, int], fault: str
) -> None:
    config = IndexConfig(kind=kind, parameters=parameters, device="cuda")
    with pytest.raises(ConfigError) as raised:
        write_index(larger_study.corpus, larger_study.embeddings, tmp_path / "index", config)
    assert fault in str(raised.value) and not (tmp_path / "index").exists()


def test_memory_of_the_gpus_is_that_of_float16_vectors() -> None:
    """21,015,324 vectors of 768 on one card: 30 GiB, not the 60 of the file."""
    assert gpus.gpu_bytes("flat", 21_015_324, 768, {}) == 21_015_324 * 768 * 2


def test_scores_are_computed_from_the_file_whoever_searches(larger_study: Study, monkeypatch) -> None:
    """Another copy of the index, in float16 as on a GPU, stands in for the GPUs: same passages, same scores."""
    folder = larger_study.root / "index.cuda"
    config = IndexConfig(kind="ivf_flat", parameters={"nlist": 8, "nprobe": 8}, device="cuda")
    write_index(larger_study.corpus, larger_study.embeddings, folder, config)

    def in_half_precision(index: faiss.Index, kind: str, parameters: dict[str, int]) -> faiss.Index:
        assert (kind, parameters["nlist"]) == ("ivf_flat", 8)
        copy = faiss.IndexScalarQuantizer(index.d, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
        copy.add(np.concatenate(list(Embeddings(larger_study.embeddings).blocks())))
        return copy

    monkeypatch.setattr(stored_index, "to_all_gpus", in_half_precision)
    queries = Embeddings(larger_study.embeddings).take(np.array([1, 7, 300]))
    on_gpus, here = (StoredIndex(folder, device=device).search(queries, 5) for device in (None, "cpu"))
    assert np.array_equal(on_gpus[1], here[1]) and np.array_equal(on_gpus[0], here[0])
