"""passages.parquet and its manifest: written once by `corpus build`, opened by everything that retrieves."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from parallelsearch.config import OWN, PassageLayout
from parallelsearch.corpus.progress import reading
from parallelsearch.corpus.raw_file import RawFile
from parallelsearch.corpus.sources import SOURCES, TitledText, read_own
from parallelsearch.corpus.words import count_words
from parallelsearch.errors import ConfigError, DataError, MismatchError
from parallelsearch.files import MANIFEST, read_json, replacing, sha256, write_json
from parallelsearch.records import Passage

PASSAGES = "passages.parquet"
ROWS_PER_GROUP = 8192
REBUILD = "rerun `parallelsearch corpus build`"
SCHEMA = pa.schema([("id", pa.int64()), ("title", pa.string()), ("text", pa.string())])


def build_corpus(
    source: str,
    file: Path,
    out_dir: Path,
    licence: str = "unknown",
    workers: int = 1,
    layout: PassageLayout | None = None,
) -> dict[str, Any]:
    """Reads `file` in the layout `source` and writes passages.parquet and manifest.json to `out_dir`.

    Memory stays at one row group (8,192 passages) beside what the source says it holds; `workers` processes strip
    the markup of a dump; `layout` says where the texts of the source `own` stand. Shows progress and returns the
    manifest. Raises DataError on the first faulty record; then, as after a kill, there is no manifest, and the next
    run begins anew.
    """
    if source not in SOURCES:
        raise DataError(f"corpus source is '{source}', which is unknown; known sources: {', '.join(SOURCES)}.")
    if workers < 1:
        raise DataError(f"the number of workers is {workers}; give 1 or more.")
    if layout is not None and source != OWN:
        raise ConfigError(f"corpus build: a layout is for the source '{OWN}', but the source is '{source}'.")
    read = partial(read_own, layout=layout) if layout else SOURCES[source]
    path, out_dir = Path(file), Path(out_dir)
    rows = words = 0
    (out_dir / MANIFEST).unlink(missing_ok=True)
    for abandoned in out_dir.glob(f".{PASSAGES}.*.partial"):  # of a run that was killed
        abandoned.unlink()
    with reading(path, workers) as (raw, show), replacing(out_dir / PASSAGES) as unfinished:
        with pq.ParquetWriter(unfinished, SCHEMA, compression="zstd") as writer:
            group: list[TitledText] = []
            for row in show(read(raw)):
                group.append(row)
                words += count_words(row[1])
                if len(group) == ROWS_PER_GROUP:
                    rows += _write(writer, group, rows)
                    group.clear()
            rows += _write(writer, group, rows)
        if not rows:
            raise DataError(f"{path} holds no passages{_why(raw)}; check the path and the source '{source}'.")
    manifest = {
        "kind": "corpus",
        "source": source,
        "licence": licence,
        "rows": rows,
        "words_per_passage": round(words / rows, 2),
        "sha256": sha256(out_dir / PASSAGES),
        "bytes": (out_dir / PASSAGES).stat().st_size,
        "input": path.name,
        "input_sha256": sha256(path),
        "records_read": raw.read,
        "records_used": raw.read - raw.dropped.total(),
        "records_dropped": dict(sorted(raw.dropped.items())),
        "titles_unread": dict(sorted(raw.unread.items())),
    }
    write_json(out_dir / MANIFEST, manifest)
    return manifest


class Corpus:
    """The passages of one corpus folder, looked up by id (row number). Texts stay in Arrow memory, not in objects."""

    def __init__(self, folder: Path) -> None:
        """Checks the manifest against the Parquet footer; raises DataError or MismatchError naming both values."""
        self.folder = Path(folder)
        self.path = self.folder / PASSAGES
        self.manifest: dict[str, Any] = read_json(self.folder / MANIFEST)
        try:
            self._file = pq.ParquetFile(self.path, memory_map=True)
        except FileNotFoundError:
            raise DataError(f"{self.path} is missing; {REBUILD}.") from None
        except (pa.ArrowInvalid, OSError) as error:
            reason = str(error).splitlines()[0]
            raise DataError(f"{self.path} is truncated or broken ({reason}); {REBUILD}.") from None
        rows = self._file.metadata.num_rows
        if rows != self.manifest["rows"]:
            raise MismatchError(
                f"{self.path} has {rows} rows, but its manifest says {self.manifest['rows']}; {REBUILD}."
            )
        self._lock = threading.Lock()
        self._batches: list[pa.RecordBatch] = []
        self._starts = np.zeros(0, dtype=np.int64)

    @property
    def sha256(self) -> str:
        """SHA-256 of passages.parquet, as the manifest gives it: the identity of the corpus."""
        return str(self.manifest["sha256"])

    def __len__(self) -> int:
        return int(self.manifest["rows"])

    def __getitem__(self, passage_id: int) -> Passage:
        """The passage with this id; loads the texts at the first call. Raises IndexError outside 0 .. rows - 1."""
        if not 0 <= passage_id < len(self):
            raise IndexError(f"passage {passage_id} of a corpus of {len(self)}")
        with self._lock:
            if not self._batches:
                self._load()
        number = int(np.searchsorted(self._starts, passage_id, side="right")) - 1
        row = passage_id - int(self._starts[number])
        title, text = (column[row].as_py() for column in self._batches[number].columns)
        return Passage(int(passage_id), title, text)

    def rows(self, start: int, stop: int, batch: int = 8192) -> Iterator[list[Passage]]:
        """Passages `start` .. `stop - 1` in order, in lists of at most `batch`; reads only the row groups it needs."""
        first = 0
        for group in range(self._file.num_row_groups):
            size = self._file.metadata.row_group(group).num_rows
            if first < stop and first + size > start:
                table = self._file.read_row_group(group).slice(max(start - first, 0))
                table = table.slice(0, stop - max(first, start))
                for part in table.to_batches(max_chunksize=batch):
                    yield [Passage(row["id"], row["title"], row["text"]) for row in part.to_pylist()]
            first += size

    def titled(self, titles: Iterable[str]) -> Iterator[Passage]:
        """The passages with one of these titles, in order; reads the whole file, one row group at a time."""
        wanted = pa.array(sorted(set(titles)), pa.string())
        for group in range(self._file.num_row_groups):
            table = self._file.read_row_group(group)
            for row in table.filter(pc.is_in(table["title"], value_set=wanted)).to_pylist():
                yield Passage(row["id"], row["title"], row["text"])

    def _load(self) -> None:
        batches = [batch for batch in self._file.read(columns=["title", "text"]).to_batches() if len(batch)]
        self._starts = np.cumsum([0, *map(len, batches[:-1])], dtype=np.int64)
        self._batches = batches


def _write(writer: pq.ParquetWriter, group: list[TitledText], first_id: int) -> int:
    """Writes one row group; returns its number of rows."""
    if group:
        titles, texts = zip(*group, strict=True)
        ids = range(first_id, first_id + len(group))
        writer.write_table(pa.table([pa.array(ids, pa.int64()), pa.array(titles), pa.array(texts)], SCHEMA))
    return len(group)


def _why(raw: RawFile) -> str:
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(raw.dropped.items()))
    return f" (left out: {reasons})" if reasons else ""
