"""Stored indexes: manifests, everything they refuse, scores, and memory shared by those who open one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small_study import DUPLICATED, Study

from parallelsearch.config import IndexConfig
from parallelsearch.errors import DataError, MismatchError, UserError
from parallelsearch.files import MANIFEST, read_json, sha256, write_json
from parallelsearch.retrieval.encoding.embeddings import Embeddings, shard_path
from parallelsearch.retrieval.indexes import stored_index
from parallelsearch.retrieval.indexes.stored_index import StoredIndex, write_index


def test_the_manifest_of_a_built_index(study: Study) -> None:
    manifest = read_json(study.index / MANIFEST)
    assert (manifest["kind"], manifest["ntotal"], manifest["dim"]) == ("flat", 43, 384)
    assert manifest["metric"] == "inner_product"
    recalls = {"recall_at": 10, "recall": 1.0, "recall_at_3": 1.0, "recall_at_10": 1.0}
    assert manifest["quality"] == {**recalls, "self_retrieval": 1.0, "sample": 43}
    assert manifest["corpus"]["sha256"] == sha256(study.corpus / "passages.parquet")
    assert manifest["sha256"] == sha256(study.index / "index.faiss")


def test_every_passage_finds_itself_or_its_duplicate(study: Study) -> None:
    stored, vectors = StoredIndex(study.index), np.concatenate(list(Embeddings(study.embeddings).blocks()))
    _, ids = stored.search(vectors, 1)
    expected = [*range(42), DUPLICATED]
    assert ids[:, 0].tolist() == expected


def test_vectors_that_are_not_normalised_are_refused(own_study: Study, tmp_path: Path) -> None:
    """By inner product the longest one wins every search."""
    embeddings = read_json(own_study.embeddings / MANIFEST)
    path = shard_path(own_study.embeddings, 0, 2)
    vectors = np.load(path)
    vectors[5] *= 3
    np.save(path, vectors)
    write_json(own_study.embeddings / MANIFEST, embeddings)
    with pytest.raises(DataError, match=r"vectors have lengths from \d\.\d+ to [23]\.\d+, not 1"):
        write_index(own_study.corpus, own_study.embeddings, tmp_path / "index", IndexConfig())
    assert not (tmp_path / "index").exists()


def test_an_index_whose_passages_do_not_find_themselves_is_not_written(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_index, "SELF_RETRIEVAL_FLOOR", 1.01)
    with pytest.raises(DataError, match=r"only 1\.000 of 43 passages find themselves in the ivf_flat index .* 1\.01"):
        write_index(study.corpus, study.embeddings, tmp_path / "index", IndexConfig(kind="ivf_flat"))
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
