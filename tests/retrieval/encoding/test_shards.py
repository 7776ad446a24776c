"""Encoding a shard: every row once, a finished one never again, and on from the last block after a kill."""

from __future__ import annotations

import fcntl
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_study import SHORT_ROWS, Study

from parallelsearch.errors import DataError
from parallelsearch.files import MANIFEST, read_json, sha256, write_json
from parallelsearch.retrieval.encoding.embeddings import shard_path, shard_rows, write_embeddings_manifest
from parallelsearch.retrieval.encoding.encoder import Encoder
from parallelsearch.retrieval.encoding.shards import embed_shard

BLOCK = 75


@given(st.integers(0, 10_000), st.integers(1, 64))
def test_shards_cover_every_row_once_and_differ_by_at_most_one(rows: int, of: int) -> None:
    bounds = [shard_rows(rows, shard, of) for shard in range(of)]
    assert [row for start, stop in bounds for row in range(start, stop)] == list(range(rows))
    sizes = [stop - start for start, stop in bounds]
    assert max(sizes) - min(sizes) <= 1


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


def embed_in_blocks(study: Study, out: Path, block: int = BLOCK, tokens_per_batch: int = 2048) -> bool:
    return embed_shard(study.corpus, study.encoder, out, 0, 1, tokens_per_batch, "cpu", block)


def count_encoded(monkeypatch: pytest.MonkeyPatch, fail_after: int = 1000) -> list[int]:
    """The number of passages of each block that gets encoded from now on; the block after `fail_after` others fails."""
    sizes: list[int] = []
    original = Encoder.encode_tokens

    def encode_tokens(self: Encoder, tokens: list, *rest: object) -> np.ndarray:
        if len(sizes) == fail_after:
            raise MemoryError("no room for this block")
        sizes.append(len(tokens))
        return original(self, tokens, *rest)

    monkeypatch.setattr(Encoder, "encode_tokens", encode_tokens)
    return sizes


@pytest.mark.parametrize("fail_after", [0, 2])
def test_a_run_goes_on_from_the_last_block_of_one_that_ended_early(
    short: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail_after: int
) -> None:
    with monkeypatch.context() as patch:
        count_encoded(patch, fail_after)
        with pytest.raises(MemoryError):
            embed_in_blocks(short, tmp_path)
    assert not (tmp_path / "shard-0-of-1.npy").exists() and not (tmp_path / "shard-0-of-1.json").exists()
    with pytest.raises(DataError, match=r"shard-0-of-1\.npy is missing or unfinished; rerun .*--shard 0 --of 1"):
        write_embeddings_manifest(short.corpus, short.encoder, tmp_path, 1)
    sizes = count_encoded(monkeypatch)
    assert embed_in_blocks(short, tmp_path)
    assert sum(sizes) == SHORT_ROWS - BLOCK * fail_after
    assert sorted(p.name for p in tmp_path.iterdir()) == ["shard-0-of-1.json", "shard-0-of-1.npy"]
    whole = tmp_path / "whole"
    embed_in_blocks(short, whole)
    assert sha256(whole / "shard-0-of-1.npy") == sha256(tmp_path / "shard-0-of-1.npy")


def test_blocks_that_were_made_otherwise_are_not_kept(
    short: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vector depends a little on its batch: a file of two kinds of batches could never be made again."""
    with monkeypatch.context() as patch:
        count_encoded(patch, fail_after=2)
        with pytest.raises(MemoryError):
            embed_in_blocks(short, tmp_path)
    sizes = count_encoded(monkeypatch)
    assert embed_in_blocks(short, tmp_path, tokens_per_batch=1024)
    assert sum(sizes) == SHORT_ROWS


def test_two_processes_do_not_encode_one_shard(short: Study, tmp_path: Path) -> None:
    with (tmp_path / ".shard-0-of-1.npy.partial").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(DataError, match=r"shard-0-of-1\.npy\.partial is being written by another process; wait"):
            embed_in_blocks(short, tmp_path)
    assert embed_in_blocks(short, tmp_path)
