"""Runs a step of the program again and again in processes that it kills: `killed_run.py STEP FOLDER MOMENTS`.

The libraries are imported once, before the processes are forked. For each of MOMENTS (shares of an undisturbed run's
time) FOLDER/NUMBER gets one run that is killed then and one that is not. Prints which files were there after each kill.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path

import faiss  # noqa: F401
import torch
from transformers import AutoConfig, AutoModel, BertModel  # noqa: F401

from parallelsearch.config import IndexConfig
from parallelsearch.retrieval.encoding.shards import embed_shard
from parallelsearch.retrieval.indexes import stored_index

STEPS = {
    "embed": lambda root, out: embed_shard(root / "corpus", root / "encoder", out, 0, 1, 2048, "cpu", 10),
    "index": lambda root, out: stored_index.write_index(
        root / "corpus", root / "embeddings", out, IndexConfig(kind="hnsw")
    ),
}


def started(step: str, root: Path, out: Path) -> int:
    """The process of one run."""
    process = os.fork()
    if process:
        return process
    torch.set_num_threads(1)
    with redirect_stdout(io.StringIO()):  # progress
        STEPS[step](root, out)
    os._exit(0)


def killed(process: int, after: float) -> bool:
    """Kills a run so many seconds after its start; False where it had ended."""
    time.sleep(after)
    os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    return os.WIFSIGNALED(status)


def finish(process: int) -> None:
    _, status = os.waitpid(process, 0)
    assert status == 0, f"an undisturbed run ended with {status}"


def main(step: str, root: Path, folder: Path, moments: list[float]) -> None:
    for number in (0, 1):  # the first run fills the file cache, the second is timed
        begun = time.monotonic()
        finish(started(step, root, folder / f"undisturbed{number}"))
        lasts = time.monotonic() - begun
    seen = []
    for number, moment in enumerate(moments):
        out = folder / str(number)
        while not killed(started(step, root, out), moment * lasts):
            shutil.rmtree(out)  # it had ended before: the machine is faster now than it was
            lasts *= 0.8
        seen.append(sorted(path.name for path in out.iterdir()) if out.is_dir() else [])
        finish(started(step, root, out))
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), json.loads(sys.argv[4]))
