"""Embeddings: the vectors of the passages, and refused when the shards are not what the manifest says."""

from __future__ import annotations

import numpy as np
import pytest
from small_study import Study

from parallelsearch.corpus.passages import Corpus
from parallelsearch.errors import DataError, MismatchError
from parallelsearch.files import MANIFEST, read_json, sha256, write_json
from parallelsearch.retrieval.encoding.embeddings import (
    Embeddings,
    shard_path,
    write_embeddings_manifest,
)
from parallelsearch.retrieval.encoding.encoder import Encoder


def test_vectors_of_the_shards_are_those_of_the_passages(study: Study, encoder: Encoder) -> None:
    embeddings, corpus = Embeddings(study.embeddings), Corpus(study.corpus)
    assert len(embeddings) == len(corpus) == 43
    stored = np.concatenate(list(embeddings.blocks(size=10)))
    assert stored.shape == (43, 384)
    expected = encoder.encode_passages([corpus[n] for n in range(43)])
    assert (stored * expected).sum(1).min() > 0.9995
    rows = np.array([42, 0, 21, 22])
    assert np.array_equal(embeddings.take(rows), stored[rows])


def test_the_manifest_names_model_prefixes_and_checksums(study: Study) -> None:
    manifest = read_json(study.embeddings / MANIFEST)
    assert manifest["corpus_sha256"] == sha256(study.corpus / "passages.parquet")
    assert (manifest["rows"], manifest["dim"], manifest["dtype"]) == (43, 384, "float16")
    assert manifest["encoder"]["passage_prefix"] == "passage: "
    assert manifest["encoder"]["files"]["model.safetensors"] == sha256(study.encoder / "model.safetensors")
    for entry in manifest["shards"]:
        assert entry["sha256"] == sha256(study.embeddings / entry["file"])


def test_the_manifest_refuses_shards_of_another_corpus_or_encoder(own_study: Study) -> None:
    arguments = (own_study.corpus, own_study.encoder, own_study.embeddings, 2)
    manifest = read_json(own_study.corpus / MANIFEST)
    write_json(own_study.corpus / MANIFEST, {**manifest, "sha256": "0ther"})
    with pytest.raises(MismatchError) as raised:
        write_embeddings_manifest(*arguments)
    assert manifest["sha256"] in str(raised.value) and "0ther" in str(raised.value)
    write_json(own_study.corpus / MANIFEST, manifest)
    encoder = read_json(own_study.encoder / MANIFEST)
    write_json(own_study.encoder / MANIFEST, {**encoder, "pooling": "cls"})
    with pytest.raises(MismatchError, match=r"encoder pooling mean, but .* has cls; rerun"):
        write_embeddings_manifest(*arguments)
    write_json(own_study.encoder / MANIFEST, encoder)
    assert write_embeddings_manifest(*arguments)["rows"] == 43


@pytest.mark.parametrize("kept", [0, 64, 5000])
def test_a_truncated_shard_is_refused(own_study: Study, kept: int) -> None:
    path = shard_path(own_study.embeddings, 1, 2)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DataError, match=r"shard-1-of-2\.npy is missing, truncated or broken"):
        Embeddings(own_study.embeddings)


def test_a_shard_with_a_row_too_few_is_refused(own_study: Study) -> None:
    path = shard_path(own_study.embeddings, 1, 2)
    np.save(path, np.load(path)[:-1])
    with pytest.raises(MismatchError, match=r"has shape \(21, 384\), but the manifest says \(22, 384\)"):
        Embeddings(own_study.embeddings)
