"""One shard of a corpus -> its vectors, block by block; a killed run goes on from the last block that it finished."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from parallelsearch.corpus.passages import Corpus
from parallelsearch.errors import DataError
from parallelsearch.files import MANIFEST, read_json, sha256, write_json
from parallelsearch.machine.full_disk import naming_full_disk
from parallelsearch.machine.preflight import disk_available, require_space
from parallelsearch.retrieval.encoding.embeddings import DTYPE, encoder_identity, shard_path, shard_rows
from parallelsearch.retrieval.encoding.encoder import TOKENS_PER_BATCH, Encoder

PASSAGES_PER_BLOCK = 4096


def embed_shard(
    corpus_dir: Path,
    encoder_dir: Path,
    out_dir: Path,
    shard: int,
    of: int,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    device: str | None = None,
    passages_per_block: int = PASSAGES_PER_BLOCK,
) -> bool:
    """Writes shard-{shard}-of-{of}.npy (float16 [rows of the shard, dim]) and, last, its description beside it.

    Returns False without work when the shard was finished from the same corpus and encoder before. After a kill the
    finished blocks are kept, and the file comes out the same as without it. Raises DataError for a shard number outside
    0 .. `of` - 1 and while another process encodes the same shard.
    """
    if not 0 <= shard < of:
        raise DataError(f"shard is {shard} of {of}; shards are numbered from 0 to {of - 1}.")
    corpus = Corpus(corpus_dir)
    start, stop = shard_rows(len(corpus), shard, of)
    identity: dict[str, Any] = {
        "corpus_sha256": corpus.sha256,
        "encoder": encoder_identity(read_json(Path(encoder_dir) / MANIFEST)),
        "shard": shard,
        "of": of,
        "rows": [start, stop],
    }
    path = shard_path(out_dir, shard, of)
    if _finished(path, identity):
        return False
    path.with_suffix(".json").unlink(missing_ok=True)
    need = (stop - start) * identity["encoder"]["dim"] * np.dtype(DTYPE).itemsize
    step = "free some, or choose another folder of results"
    require_space(need, disk_available(path.parent), f"shard {shard} of {of} with {stop - start} vectors", step)
    encoder = Encoder.open(encoder_dir, device)
    # A vector depends a little on its batch and on the precision: blocks made otherwise do not go into one shard.
    way = {"precision": encoder.precision, "tokens_per_batch": tokens_per_batch, "block": passages_per_block}
    partial = path.with_name(f".{path.name}.partial")
    with _alone(partial):
        blocks = _Blocks(partial, {**identity, **way}, (stop - start, encoder.dim))
        unfinished = corpus.rows(start + blocks.done, stop, passages_per_block)
        _encode(blocks, encoder, unfinished, tokens_per_batch, f"shard {shard} of {of}")
        if blocks.done != stop - start:
            raise DataError(
                f"{corpus.path} gave {blocks.done} passages for rows {start} to {stop}; rebuild the corpus."
            )
        blocks.finish(path)
    write_json(path.with_suffix(".json"), {**identity, "sha256": sha256(path), "bytes": path.stat().st_size})
    return True


class _Blocks:
    """The vectors of an unfinished shard and, in a note beside them, how many rows of them are final."""

    def __init__(self, partial: Path, identity: dict[str, Any], shape: tuple[int, int]) -> None:
        self.partial = partial
        self.note = partial.with_name(f"{partial.name}.json")
        self.identity = identity
        self.done = 0
        if self.note.is_file():
            found = read_json(self.note)
            if all(found.get(key) == value for key, value in identity.items()):
                self.done = int(found["done"])
        mode = "r+" if self.done else "w+"
        with naming_full_disk(partial, partial.unlink):
            self.vectors = np.lib.format.open_memmap(partial, mode=mode, dtype=DTYPE, shape=shape)
            if not self.done:
                _reserve(partial)

    def append(self, vectors: np.ndarray) -> None:
        """Makes the next rows final: first the vectors reach the file, then the note says so."""
        self.vectors[self.done : self.done + len(vectors)] = vectors
        self.vectors.flush()
        self.done += len(vectors)
        write_json(self.note, {**self.identity, "done": self.done})

    def finish(self, path: Path) -> None:
        del self.vectors
        self.note.unlink(missing_ok=True)
        self.partial.replace(path)


def _reserve(path: Path) -> None:
    """Takes the whole file's room on the disk: a mapped page that finds none later ends the process by SIGBUS."""
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


@contextmanager
def _alone(partial: Path) -> Iterator[None]:
    """Holds the lock of an unfinished shard; the system releases it with the process, however that ends."""
    partial.parent.mkdir(parents=True, exist_ok=True)
    with partial.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"{partial} is being written by another process; wait for it, or end it.") from None
        yield


def _encode(
    blocks: _Blocks, encoder: Encoder, passages: Iterable[list[Any]], tokens_per_batch: int, label: str
) -> None:
    """Encodes block after block; the next one is read and tokenised meanwhile."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress, ThreadPoolExecutor(1) as reader:
        task = progress.add_task(label, total=len(blocks.vectors), completed=blocks.done)
        tokenised = map(encoder.tokenise_passages, passages)
        following = reader.submit(next, tokenised, None)
        while (tokens := following.result()) is not None:
            following = reader.submit(next, tokenised, None)
            blocks.append(encoder.encode_tokens(tokens, tokens_per_batch, lambda n: progress.advance(task, n)))


def _finished(path: Path, identity: dict[str, Any]) -> bool:
    note = path.with_suffix(".json")
    if not path.is_file() or not note.is_file():
        return False
    found = read_json(note)
    same = all(found.get(key) == value for key, value in identity.items())
    return same and found["bytes"] == path.stat().st_size and found["sha256"] == sha256(path)
