"""The retriever of a training job: one for several jobs, where one answers for this index, else the job's own."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from parallelsearch.errors import MismatchError, RetrieverError
from parallelsearch.files import MANIFEST, read_json
from parallelsearch.training.process.server_process import server_process

SHARED = "retriever.json"  # in the index' folder: host, port, url and the index' checksum of a server for all jobs


@contextmanager
def served_index(index: Path, folder: Path, nodes: int = 1, wait_seconds: float = 3600.0) -> Iterator[str]:
    """Yields the URL of a server for `index`: the shared one (`shared_url`), or one that ends with the block.

    The latter's log is `folder`/retriever.log, its port a free one. A job on one node listens on 127.0.0.1, one on
    several on the node's own name. RetrieverError when the server ends or is not ready in time.
    """
    if url := shared_url(index):
        print(f"Searching with the shared retriever at {url}", flush=True)
        yield url
        return
    host = "127.0.0.1" if nodes == 1 else socket.gethostname()
    arguments = ["retriever", "serve", "--index", str(index), "--host", host]
    ready, log = folder / "retriever.json", folder / "retriever.log"
    called = f"The retriever server for {index}"
    with server_process(arguments, ready, log, called, RetrieverError, wait_seconds) as url:
        yield url


def shared_url(index: Path) -> str | None:
    """The URL of the server that `index`/retriever.json names; None without such a file, or where nobody answers there.

    MismatchError where it serves another index than the one that lies there now.
    """
    if not (index / SHARED).exists():
        return None
    ready, own = read_json(index / SHARED), read_json(index / MANIFEST)["sha256"]
    try:
        httpx.get(f"{ready['url']}/health", timeout=10).raise_for_status()
    except httpx.HTTPError:
        return None
    if ready["index_sha256"] != own:
        raise MismatchError(
            f"{index / SHARED} names a retriever that serves the index {ready['index_sha256'][:12]}, but the index"
            f" there is {own[:12]} now; start that retriever again."
        )
    return str(ready["url"])
