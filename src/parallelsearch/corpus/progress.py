"""How far the reading of a raw file has come, on the terminal or in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from parallelsearch.corpus.raw_file import RawFile

Row = TypeVar("Row")
Show = Callable[[Iterator[Row]], Iterator[Row]]
ROWS_PER_UPDATE = 1000


@contextmanager
def reading(path: Path, workers: int) -> Iterator[tuple[RawFile, Show]]:
    """A RawFile whose reading moves a bar (bytes of the file), and a function that counts the passages beside it."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[passages]:,} passages"),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as progress:
        size = path.stat().st_size if path.is_file() else None
        task = progress.add_task(path.name, total=size, passages=0)
        raw = RawFile(path, workers)

        def counted(rows: Iterator[Row]) -> Iterator[Row]:
            number = 0
            for number, row in enumerate(rows, start=1):
                yield row
                if number % ROWS_PER_UPDATE == 0:
                    progress.update(task, completed=raw.position, passages=number)
            progress.update(task, completed=raw.position, passages=number)

        yield raw, counted
