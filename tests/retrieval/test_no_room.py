"""An index or a shard for which there is no room is not begun."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_study import Study

from parallelsearch.config import IndexConfig
from parallelsearch.errors import ResourceError
from parallelsearch.machine.preflight import Space
from parallelsearch.retrieval.encoding import shards as encoding
from parallelsearch.retrieval.indexes import stored_index


def no_room(_: object = None) -> Space:
    return Space(1000, "the machine's memory")


def test_an_index_that_does_not_fit_is_not_begun(
    own_study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> None:
        stored_index.write_index(own_study.corpus, own_study.embeddings, tmp_path / "new", IndexConfig())

    with monkeypatch.context() as patch:
        patch.setattr(stored_index, "memory_available", no_room)
        with pytest.raises(ResourceError, match=r"building the flat index of 43 vectors of 384 needs .* memory has"):
            build()
        with pytest.raises(ResourceError, match=r"opening .*index.faiss needs 0.1 MiB, but .* 'flat_int8', needs 0.0"):
            stored_index.StoredIndex(own_study.index)
    monkeypatch.setattr(stored_index, "disk_available", lambda folder: Space(1000, f"the disk of {folder}"))
    with pytest.raises(ResourceError, match=r"needs 0.1 MiB, but the disk of .*new has 0.0 MiB free; free some"):
        build()
    assert not (tmp_path / "new").exists()


def test_a_shard_that_does_not_fit_is_not_begun(own_study: Study, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(encoding, "disk_available", lambda folder: Space(1000, "the disk"))
    with pytest.raises(ResourceError, match=r"shard 0 of 1 with 43 vectors needs 0.0 MiB, but the disk has"):
        encoding.embed_shard(own_study.corpus, own_study.encoder, tmp_path / "embeddings", 0, 1)
