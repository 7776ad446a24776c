"""Index kinds against brute force in NumPy; manifests and everything they refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small_study import DUPLICATED, Study

from parallelsearch.config import IndexConfig
from parallelsearch.errors import ConfigError, DataError, MismatchError, UserError
from parallelsearch.files import MANIFEST, read_json, sha256, write_json
from parallelsearch.retrieval.encoding.embeddings import DTYPE, Embeddings, shard_path
from parallelsearch.retrieval.indexes.kinds import build_index, complete_parameters, exact_neighbours
from parallelsearch.retrieval.indexes.plan import index_needs
from parallelsearch.retrieval.indexes.stored_index import StoredIndex, measure, write_index

ROWS, DIM = 3000, 24


@pytest.fixture(scope="module")
def clustered(tmp_path_factory: pytest.TempPathFactory) -> Embeddings:
    """3,000 unit vectors in three shards around 40 centres: hard enough that a careless search loses neighbours."""
    random = np.random.default_rng(7)
    centres = random.normal(size=(40, DIM))
    vectors = centres[random.integers(0, 40, ROWS)] + 0.5 * random.normal(size=(ROWS, DIM))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(DTYPE)
    folder = tmp_path_factory.mktemp("clustered")
    shards = []
    for shard in range(3):
        np.save(shard_path(folder, shard, 3), vectors[shard * 1000 : (shard + 1) * 1000])
        shards.append({"file": shard_path(folder, shard, 3).name, "rows": [shard * 1000, (shard + 1) * 1000]})
    write_json(folder / MANIFEST, {"rows": ROWS, "dim": DIM, "encoder_path": "../none", "shards": shards})
    return Embeddings(folder)


def brute_force(embeddings: Embeddings, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    scores = queries.astype(np.float64) @ np.concatenate(list(embeddings.blocks())).T.astype(np.float64)
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, ids, axis=1), ids


def test_exact_neighbours_over_blocks_agree_with_brute_force(clustered: Embeddings) -> None:
    queries = np.random.default_rng(1).normal(size=(20, DIM)).astype(np.float32)
    scores, ids = exact_neighbours(clustered, queries, 10)
    expected_scores, expected_ids = brute_force(clustered, queries, 10)
    assert np.array_equal(ids, expected_ids)
    assert np.allclose(scores, expected_scores, atol=1e-5)


@pytest.mark.parametrize(("kind", "least"), [("flat", 1.0), ("flat_fp16", 1.0), ("ivf_flat", 0.8), ("hnsw", 0.95)])
def test_every_kind_finds_the_neighbours_of_brute_force(clustered: Embeddings, kind: str, least: float) -> None:
    index = build_index(IndexConfig(kind=kind), clustered).index
    assert index.ntotal == ROWS and index.metric_type == 0  # 0: inner product
    queries = np.random.default_rng(2).normal(size=(50, DIM)).astype(np.float32)
    _, ids = index.search(queries, 10)
    _, expected = brute_force(clustered, queries, 10)
    shared = [len(set(a) & set(b)) / 10 for a, b in zip(ids.tolist(), expected.tolist(), strict=True)]
    assert np.mean(shared) >= least


def test_search_parameters_act_and_the_measured_recall_shows_it(clustered: Embeddings) -> None:
    def recall(kind: str, **parameters: int) -> float:
        built = build_index(IndexConfig(kind=kind, parameters=parameters), clustered)
        assert all(built.parameters[name] == value for name, value in parameters.items())
        return measure(built.index, clustered)["recall"]

    one, all_lists = recall("ivf_flat", nlist=60, nprobe=1), recall("ivf_flat", nlist=60, nprobe=60)
    assert one < 0.98 and all_lists == 1.0
    assert recall("hnsw", M=4, efConstruction=8, efSearch=1) < recall("hnsw", M=32, efSearch=256)


def test_two_builds_give_the_same_index(clustered: Embeddings, tmp_path: Path) -> None:
    import faiss

    for name in ("a", "b"):
        faiss.write_index(build_index(IndexConfig(kind="ivf_flat"), clustered).index, str(tmp_path / name))
    assert sha256(tmp_path / "a") == sha256(tmp_path / "b")


@pytest.mark.parametrize(
    ("kind", "parameters", "fault"),
    [
        ("flat", {"nprobe": 4}, "'nprobe', unknown to kind 'flat'; allowed: none"),
        ("ivf_flat", {"efSearch": 4}, "'efSearch', unknown to kind 'ivf_flat'; allowed: nlist, nprobe"),
        ("hnsw", {"M": 0}, "index.parameters.M is 0"),
    ],
)
def test_parameters_of_another_kind_are_refused(kind: str, parameters: dict[str, int], fault: str) -> None:
    with pytest.raises(ConfigError) as raised:
        complete_parameters(IndexConfig(kind=kind, parameters=parameters), 100)
    assert fault in str(raised.value)


def test_defaults_fit_the_number_of_rows() -> None:
    assert complete_parameters(IndexConfig(kind="ivf_flat"), 1_000_000) == {"nlist": 4000, "nprobe": 16}
    assert complete_parameters(IndexConfig(kind="ivf_flat"), 5) == {"nlist": 5, "nprobe": 5}


def test_the_papers_index_needs_what_users_measured() -> None:
    """21,015,324 vectors of 768: users report 60 to 62 GB; 32 links a vector take 66 numbers of 4 bytes."""
    needs = {need.kind: need.bytes for need in index_needs(21_015_324, 768)}
    assert needs["flat"] == 21_015_324 * 768 * 4 and 60 <= needs["flat"] / 2**30 <= 65
    assert needs["flat_fp16"] * 2 == needs["flat"]
    assert needs["hnsw"] - needs["flat"] == 21_015_324 * 66 * 4


@pytest.mark.parametrize("kind", ["flat", "ivf_flat", "hnsw"])
def test_the_planned_size_is_the_size_of_the_file(clustered: Embeddings, tmp_path: Path, kind: str) -> None:
    import faiss

    faiss.write_index(build_index(IndexConfig(kind=kind), clustered).index, str(tmp_path / kind))
    planned = {need.kind: need.bytes for need in index_needs(ROWS, DIM)}[kind]
    assert planned == pytest.approx((tmp_path / kind).stat().st_size, rel=0.15)


def test_the_manifest_of_a_built_index(study: Study) -> None:
    manifest = read_json(study.index / MANIFEST)
    assert (manifest["kind"], manifest["ntotal"], manifest["dim"]) == ("flat", 43, 384)
    assert manifest["metric"] == "inner_product"
    assert manifest["quality"] == {"recall_at": 10, "recall": 1.0, "self_retrieval": 1.0, "sample": 43}
    assert manifest["corpus"]["sha256"] == sha256(study.corpus / "passages.parquet")
    assert manifest["sha256"] == sha256(study.index / "index.faiss")


def test_every_passage_finds_itself_or_its_duplicate(study: Study) -> None:
    stored, vectors = StoredIndex(study.index), np.concatenate(list(Embeddings(study.embeddings).blocks()))
    _, ids = stored.search(vectors, 1)
    expected = [*range(42), DUPLICATED]
    assert ids[:, 0].tolist() == expected


def test_an_index_whose_passages_do_not_find_themselves_is_not_written(own_study: Study, tmp_path: Path) -> None:
    """Un-normalised vectors: by inner product the longest one wins every search."""
    embeddings = read_json(own_study.embeddings / MANIFEST)
    path = shard_path(own_study.embeddings, 0, 2)
    vectors = np.load(path)
    vectors[5] *= 3
    np.save(path, vectors)
    write_json(own_study.embeddings / MANIFEST, embeddings)
    with pytest.raises(DataError, match=r"only 0\.\d+ of 43 passages find themselves in the flat index"):
        write_index(own_study.corpus, own_study.embeddings, tmp_path / "index", IndexConfig())
    assert not (tmp_path / "index").exists()


def test_a_study_that_was_moved_as_a_whole_still_opens(own_study: Study) -> None:
    elsewhere = own_study.root.parent.parent / "elsewhere"
    own_study.root.rename(elsewhere)
    assert len(StoredIndex(elsewhere / "index").corpus) == 43


def edit(path: Path, *keys: str, value: object) -> None:
    manifest = read_json(path / MANIFEST)
    inner = manifest
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    write_json(path / MANIFEST, manifest)


def shorten(path: Path, missing: int) -> None:
    path.write_bytes(path.read_bytes()[:-missing])


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 0xFF
    path.write_bytes(content)


def one_row_fewer(study: Study) -> None:
    """An index of 42 vectors whose manifest still says 43."""
    import faiss

    index = faiss.read_index(str(study.index / "index.faiss"))
    index.remove_ids(np.array([42]))
    faiss.write_index(index, str(study.index / "index.faiss"))
    edit(study.index, "sha256", value=sha256(study.index / "index.faiss"))
    edit(study.index, "bytes", value=(study.index / "index.faiss").stat().st_size)


def without_corpus_checks(study: Study) -> None:
    edit(study.corpus, "sha256", value="0ther")


MISMATCHES: dict[str, tuple[Callable[[Study], None], list[str]]] = {
    "index of another corpus": (without_corpus_checks, ["corpus sha256", "0ther", "index build"]),
    "another model": (lambda s: edit(s.encoder, "model", value="m2"), ["encoder model", "intfloat/multilingual", "m2"]),
    "other prefix": (lambda s: edit(s.encoder, "query_prefix", value=""), ["encoder query_prefix", "query: "]),
    "other weights": (lambda s: edit(s.encoder, "files", value={"w": "1"}), ["encoder files", "{'w': '1'}"]),
    "other dimension": (lambda s: edit(s.encoder, "dim", value=768), ["dimension 384", "has 768", "index build"]),
    "more rows than vectors": (lambda s: edit(s.index, "ntotal", value=42), ["ntotal 42", "has 43", "index build"]),
    "an index with one row fewer": (one_row_fewer, ["ntotal 42", "has 43", "index build"]),
    "truncated index": (lambda s: shorten(s.index / "index.faiss", 100), ["size in bytes", "index.faiss"]),
    "changed index": (lambda s: flip_a_byte(s.index / "index.faiss"), ["sha256", "index.faiss"]),
    "truncated corpus": (lambda s: shorten(s.corpus / "passages.parquet", 9), ["passages.parquet is truncated"]),
    "no index file": (lambda s: (s.index / "index.faiss").unlink(), ["index.faiss is missing", "index build"]),
    "no manifest": (lambda s: (s.index / MANIFEST).unlink(), ["manifest.json is missing"]),
    "no encoder": (lambda s: (s.encoder / MANIFEST).unlink(), ["encoder/manifest.json is missing"]),
}


@pytest.mark.parametrize("case", MISMATCHES)
def test_parts_that_do_not_belong_together_are_refused(own_study: Study, case: str) -> None:
    assert StoredIndex(own_study.index).index.ntotal == 43
    change, named = MISMATCHES[case]
    change(own_study)
    with pytest.raises((MismatchError, DataError)) as raised:
        StoredIndex(own_study.index)
    message = str(raised.value)
    assert all(part in message for part in named), message
    assert message.count("\n") == 0


@pytest.mark.parametrize("change", ["corpus", "encoder", "rows"])
def test_an_index_is_not_built_from_parts_that_do_not_match(own_study: Study, change: str, tmp_path: Path) -> None:
    if change == "corpus":
        edit(own_study.corpus, "sha256", value="0ther")
    elif change == "encoder":
        edit(own_study.encoder, "max_tokens", value=128)
    else:
        edit(own_study.embeddings, "rows", value=44)
    with pytest.raises(UserError) as raised:
        write_index(own_study.corpus, own_study.embeddings, tmp_path / "index", IndexConfig())
    found = {"corpus": "0ther", "encoder": "encoder max_tokens 512", "rows": "rows 44"}[change]
    assert found in str(raised.value) and "rerun `parallelsearch embed`" in str(raised.value)
