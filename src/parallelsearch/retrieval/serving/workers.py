"""Several processes that answer on one socket, each with an interpreter of its own; they share the index files."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

from parallelsearch.errors import RetrieverError, UserError
from parallelsearch.retrieval.serving.application import METRICS_FOLDER_VARIABLE

STOP_SECONDS = 15  # longer than a worker's own grace


def run_workers(
    count: int, run: Callable[..., None], settings: Any, listening: socket.socket, on_ready: Callable[[], None]
) -> None:
    """Runs `run(settings, listening, on_ready)` in `count` processes until SIGTERM or SIGINT.

    `on_ready` is called once, when all of them are ready. A worker that ends by itself ends the others; its failure is
    raised here. Workers share the processors: each computes with its part of the threads.
    """
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="retriever-metrics-") as metrics:
        os.environ[METRICS_FOLDER_VARIABLE] = metrics  # read when a worker imports prometheus_client
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // count)))
        pipes = [context.Pipe(duplex=False) for _ in range(count)]
        workers = [context.Process(target=_work, args=(run, settings, listening, ours)) for _, ours in pipes]
        stopped = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopped.set())
        for worker, (_, ours) in zip(workers, pipes, strict=True):
            worker.start()
            ours.close()
        try:
            _watch([theirs for theirs, _ in pipes], on_ready, stopped)
        finally:
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.join(STOP_SECONDS)
                worker.kill()


def _watch(pipes: list[Connection], on_ready: Callable[[], None], stopped: threading.Event) -> None:
    """Waits for "ready" from every worker, then for the end of one (its pipe closes) or a signal."""
    ready = 0
    while not stopped.is_set():
        for pipe in wait(pipes, timeout=0.2):
            assert isinstance(pipe, Connection)
            try:
                message = pipe.recv()
            except EOFError:
                if stopped.is_set():
                    return
                raise RetrieverError("a worker of the retriever server ended; see its last lines above.") from None
            if isinstance(message, UserError):
                raise message
            ready += 1
            if ready == len(pipes):
                on_ready()


def _work(run: Callable[..., None], settings: Any, listening: socket.socket, parent: Connection) -> None:
    _end_with_parent()
    try:
        run(settings, listening, lambda: parent.send("ready"))
    except UserError as error:
        parent.send(error)


def _end_with_parent() -> None:
    """Asks this process to stop when the one that started it is gone, even by SIGKILL."""
    started_by = multiprocessing.parent_process()
    assert started_by is not None

    def wait_for_the_end() -> None:
        started_by.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
