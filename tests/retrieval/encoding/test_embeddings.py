"""Shards: complete, resumable, and refused when they are not what the manifest says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_study import Study

from parallelsearch.corpus.passages import Corpus
from parallelsearch.errors import DataError, MismatchError
from parallelsearch.files import MANIFEST, read_json, sha256, write_json
from parallelsearch.retrieval.encoding.embeddings import (
    Embeddings,
    embed_shard,
    shard_path,
    shard_rows,
    write_embeddings_manifest,
)
from parallelsearch.retrieval.encoding.encoder import Encoder


@given(st.integers(0, 10_000), st.integers(1, 64))
def test_shards_cover_every_row_once_and_differ_by_at_most_one(rows: int, of: int) -> None:
    bounds = [shard_rows(rows, shard, of) for shard in range(of)]
    assert [row for start, stop in bounds for row in range(start, stop)] == list(range(rows))
    sizes = [stop - start for start, stop in bounds]
    assert max(sizes) - min(sizes) <= 1


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


def test_a_finished_shard_is_not_encoded_again(own_study: Study) -> None:
    path = shard_path(own_study.embeddings, 0, 2)
    before = path.stat().st_mtime_ns
    assert embed_shard(own_study.corpus, own_study.encoder, own_study.embeddings, 0, 2, device="cpu") is False
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize("change", ["corpus", "prefix", "vectors", "no description"])
def test_a_shard_of_changed_inputs_is_encoded_again(own_study: Study, change: str) -> None:
    path = shard_path(own_study.embeddings, 1, 2)
    if change == "corpus":
        manifest = read_json(own_study.corpus / MANIFEST)
        write_json(own_study.corpus / MANIFEST, {**manifest, "sha256": "another"})
    elif change == "prefix":
        manifest = read_json(own_study.encoder / MANIFEST)
        write_json(own_study.encoder / MANIFEST, {**manifest, "passage_prefix": "text: "})
    elif change == "vectors":
        np.save(path, np.zeros_like(np.load(path)))
    else:
        path.with_suffix(".json").unlink()
    before = sha256(path)
    assert embed_shard(own_study.corpus, own_study.encoder, own_study.embeddings, 1, 2, device="cpu") is True
    assert (sha256(path) == before) == (change in ("corpus", "no description"))


def test_shard_numbers_begin_at_zero(study: Study, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="shard is 2 of 2; shards are numbered from 0 to 1"):
        embed_shard(study.corpus, study.encoder, tmp_path, 2, 2)


@pytest.mark.slow
def test_a_killed_shard_leaves_no_half_file_and_the_next_run_finishes_it(own_study: Study) -> None:
    out = own_study.root / "killed"
    command = [sys.executable, "-m", "parallelsearch.cli", "embed", str(own_study.corpus), str(own_study.encoder)]
    process = subprocess.Popen([*command, str(out), "--device", "cpu"], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(out.glob(".shard-0-of-1.npy.*.partial")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (out / "shard-0-of-1.npy").exists() and not (out / "shard-0-of-1.json").exists()
    with pytest.raises(DataError, match=r"shard-0-of-1\.npy is missing or unfinished; rerun .*--shard 0 --of 1"):
        write_embeddings_manifest(own_study.corpus, own_study.encoder, out, 1)
    assert embed_shard(own_study.corpus, own_study.encoder, out, 0, 1, device="cpu")
    assert sorted(p.name for p in out.iterdir()) == ["shard-0-of-1.json", "shard-0-of-1.npy"]
    assert write_embeddings_manifest(own_study.corpus, own_study.encoder, out, 1)["rows"] == 43


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
