"""`index verify`: every file of an index and of what it is made of, whatever its size."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from small_study import Study
from typer.testing import CliRunner

from parallelsearch.config import Bm25Config, HybridConfig
from parallelsearch.errors import DataError, MismatchError
from parallelsearch.retrieval.commands import index
from parallelsearch.retrieval.indexes import stored_index
from parallelsearch.retrieval.indexes.bm25 import write_bm25
from parallelsearch.retrieval.indexes.composed import write_hybrid
from parallelsearch.retrieval.indexes.stored_index import StoredIndex
from parallelsearch.retrieval.indexes.verify import verify_index


@pytest.fixture
def hybrid(own_study: Study) -> Path:
    write_bm25(own_study.corpus, own_study.root / "bm25", Bm25Config())
    write_hybrid([own_study.index, own_study.root / "bm25"], own_study.root / "hybrid", HybridConfig())
    return own_study.root / "hybrid"


def flip(path: Path) -> None:
    """Another byte in the middle of a file; a link to a shared file becomes a file of its own."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    path.write_bytes(content)


PARTS: dict[str, Callable[[Study], Path]] = {
    "index": lambda study: study.index / "index.faiss",
    "passages": lambda study: study.corpus / "passages.parquet",
    "encoder": lambda study: study.encoder / "model.safetensors",
    "tokenizer": lambda study: study.encoder / "tokenizer.json",
    "graph": lambda study: study.encoder / "openvino.bin",
    "bm25": lambda study: next((study.root / "bm25" / "bm25").glob("data*")),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_changed_or_missing_file_of_any_part_is_found(own_study: Study, hybrid: Path, part: str) -> None:
    path = PARTS[part](own_study)
    assert path.resolve() in [file.resolve() for file in verify_index(hybrid)]
    flip(path)
    with pytest.raises(
        MismatchError, match=rf"{path.name} has sha256 \w{{64}}, but .* \w{{64}}; it was changed or dam"
    ):
        verify_index(hybrid)
    path.unlink()
    with pytest.raises(DataError, match=rf"{path.name} is missing; it was changed or damaged"):
        verify_index(hybrid)


def test_a_large_index_is_opened_by_its_size_and_verified_by_its_checksum(
    own_study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_index, "WHOLE_FILE_CHECK_BYTES", 0)  # as if every file were above the limit
    flip(own_study.index / "index.faiss")
    StoredIndex(own_study.index, device="cpu")
    with pytest.raises(MismatchError, match=r"index\.faiss has sha256"):
        verify_index(own_study.index)


def test_an_exchanged_part_is_found(own_study: Study, hybrid: Path) -> None:
    shutil.rmtree(own_study.root / "bm25")
    write_bm25(own_study.corpus, own_study.root / "bm25", Bm25Config(k1=1.5))
    with pytest.raises(MismatchError, match="index sha256"):
        verify_index(hybrid)


def test_the_command_names_every_file(own_study: Study) -> None:
    done = CliRunner().invoke(index, ["verify", str(own_study.index)])
    assert done.exit_code == 0
    assert sum("as it was written" in line for line in done.output.splitlines()) == 7
