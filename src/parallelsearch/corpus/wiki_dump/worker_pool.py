"""A function over a stream of batches in several processes: results in order, memory bounded, no hang, no hole."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess
from typing import TypeVar

from parallelsearch.errors import DataError

Batch = TypeVar("Batch")
Result = TypeVar("Result")
AHEAD = 2  # batches that wait for each worker, so that none idles


def in_order(
    work: Callable[[Batch], Result], batches: Iterable[Batch], workers: int, label: Callable[[Batch], str]
) -> Iterator[Result]:
    """`work` of each batch, in the order of `batches`, computed by `workers` processes.

    No more than AHEAD * workers + 1 batches are held at a time. What `work` or `batches` raises is raised here; a
    worker that dies is a DataError that names the oldest unfinished batch by its `label`.
    """
    context = multiprocessing.get_context("spawn")  # a fork would copy the locks of this process's threads
    pending: deque[tuple[Batch, Future[Result]]] = deque()
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent) as pool:
        try:
            for batch in batches:
                pending.append((batch, pool.submit(work, batch)))
                while len(pending) > AHEAD * workers:
                    yield pending[0][1].result()
                    pending.popleft()
            while pending:
                yield pending[0][1].result()
                pending.popleft()
        except BrokenProcessPool:
            oldest = pending[0][0] if pending else batch
            raise DataError(
                f"a worker process died at {label(oldest)} or soon after, perhaps for want of memory; build again, with"
                f" fewer than {workers} --workers if it happens again."
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
