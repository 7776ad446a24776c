"""Recall and searches a second of every kind of index, each beside exact search in the same run.

    python benchmarks/bench_index.py EMBEDDINGS WORK --queries queries.npy --rows 100000 --rows 1000000

EMBEDDINGS is a folder written by `parallelsearch embed` and `embed-manifest`. Row i of the searched set is its vector
i, or, beyond its end, a real vector plus SCALE times the difference of two other real ones, normalised again: passages
that lie as far from each other as neighbours in a large corpus do, in directions in which real passages differ. (Noise
that is equal in all directions would make passages unlike any text, and every index look worse or better than it is.)
Queries are real query vectors (a .npy file, float32 [n, dim]) or, without one, vectors made in the same way that are
not in the set.

Flat and one other kind answer in turns, round after round; a figure is the median over rounds, the ratio that of the
medians. Times are processor seconds, so that other work on the machine does not count: queries a second are those of
one busy core. One thread unless OMP_NUM_THREADS says otherwise. --write stores the figures of the last size for
`index plan`.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any, get_args

os.environ.setdefault("OMP_NUM_THREADS", "1")

import faiss
import numpy as np
import yaml

from parallelsearch.config import INDEX_KINDS, IndexConfig
from parallelsearch.files import MANIFEST, read_json, write_json, write_text
from parallelsearch.retrieval.encoding.embeddings import DTYPE, Embeddings
from parallelsearch.retrieval.indexes.building import build_index
from parallelsearch.retrieval.indexes.calibration import CALIBRATION
from parallelsearch.retrieval.indexes.kinds import apply_search_parameters, complete_parameters
from parallelsearch.retrieval.indexes.quality import exact_neighbours, recall

SCALE = 0.3
BATCH = 64
SEED = 0
BLOCK = 50_000
BUILD_PARAMETERS = ("nlist", "m", "M", "efConstruction")  # the others act on a search


def made_rows(real: np.ndarray, rows: int, seed: int) -> np.ndarray:
    """float32 [rows, dim]: unit vectors, each near a real one."""
    random = np.random.default_rng(seed)
    base, plus, minus = (random.integers(0, len(real), rows) for _ in range(3))
    vectors = real[base] + SCALE * (real[plus] - real[minus])
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def made_embeddings(source: Embeddings, folder: Path, rows: int) -> Embeddings:
    """An embeddings folder of `rows` vectors under the source's encoder; one that is there is used again."""
    if not (folder / MANIFEST).exists():
        folder.mkdir(parents=True, exist_ok=True)
        real = np.concatenate(list(source.blocks()))
        vectors = np.lib.format.open_memmap(folder / "rows.npy", "w+", DTYPE, (rows, source.dim))
        vectors[: len(real)] = real[:rows]
        for number, first in enumerate(range(len(real), rows, BLOCK)):
            vectors[first : first + BLOCK] = made_rows(real, min(BLOCK, rows - first), SEED + number)
        vectors.flush()
        manifest = {"rows": rows, "dim": source.dim, "encoder_path": str(source.encoder_dir.resolve())}
        write_json(folder / MANIFEST, {**manifest, "shards": [{"file": "rows.npy", "rows": [0, rows]}]})
    return Embeddings(folder)


def built(kind: str, parameters: dict[str, int], embeddings: Embeddings, folder: Path) -> tuple[Any, dict[str, Any]]:
    """The index and what building it took; one that was built before is opened."""
    complete = complete_parameters(IndexConfig(kind=kind, parameters=parameters), len(embeddings), embeddings.dim)
    name = "-".join(
        [kind, *(f"{key}{complete[key]}" for key in ("nlist", "m", "M", "efConstruction") if key in complete)]
    )
    path = folder / f"{name}.faiss"
    note = path.with_suffix(".json")
    if not note.exists():
        start = time.process_time()
        index = build_index(IndexConfig(kind=kind, parameters=parameters), embeddings).index
        seconds = time.process_time() - start
        faiss.write_index(index, str(path))
        write_json(note, {"build_seconds": round(seconds, 2), "bytes": path.stat().st_size})
        del index
    index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    apply_search_parameters(index, kind, complete)
    return index, {"rows": len(embeddings), "parameters": complete, **read_json(note)}


def seconds_a_query(index: Any, queries: np.ndarray, batch: int) -> float:
    start = time.process_time()
    for first in range(0, len(queries), batch):
        index.search(queries[first : first + batch], 10)
    return (time.process_time() - start) / len(queries)


def compare(flat: Any, index: Any, queries: np.ndarray, rounds: int, singles: int) -> dict[str, float]:
    """Queries a second of both, single and in batches; they answer in turns."""
    figures: dict[str, float] = {}
    for name, batch, asked in (("single", 1, queries[:singles]), ("batch", BATCH, queries[:BATCH])):
        index.search(asked[:batch], 10)  # pages in what is memory-mapped
        times = [(seconds_a_query(flat, asked, batch), seconds_a_query(index, asked, batch)) for _ in range(rounds)]
        flat_seconds, seconds = (median(side) for side in zip(*times, strict=True))
        figures |= {f"{name}_per_second": round(1 / seconds, 2), f"{name}_flat_per_second": round(1 / flat_seconds, 2)}
        figures[f"{name}_times_flat"] = round(flat_seconds / seconds, 2)
    return figures


def measured(kinds: dict[str, dict[str, int]], embeddings: Embeddings, queries: np.ndarray, folder: Path,
             rounds: int, singles: int) -> dict[str, dict[str, Any]]:  # fmt: skip
    exact_scores, _ = exact_neighbours(embeddings, queries, 10)
    flat, _ = built("flat", {}, embeddings, folder)
    flat.search(queries[:1], 1)
    found = {}
    for kind, parameters in kinds.items():
        index, figures = built(kind, parameters, embeddings, folder)
        figures |= compare(flat, index, queries, rounds, singles)
        ids = np.concatenate([index.search(queries[n : n + BATCH], 10)[1] for n in range(0, len(queries), BATCH)])
        for at in (3, 10):
            figures[f"recall_at_{at}"] = round(recall(embeddings, queries, exact_scores, ids, at), 4)
        found[kind] = figures
        print(row(kind, len(embeddings), figures), flush=True)
    return found


def row(kind: str, rows: int, figures: dict[str, Any]) -> str:
    settings = ", ".join(f"{key} {value}" for key, value in figures["parameters"].items()) or "–"
    return (
        f"| {kind} | {rows:,} | {settings} | {figures['bytes'] / rows:.0f} | {figures['build_seconds']:.0f}"
        f" | {figures['recall_at_3']:.3f} | {figures['recall_at_10']:.3f}"
        f" | {figures['single_per_second']:.1f} | {figures['single_times_flat']:.1f}"
        f" | {figures['batch_per_second']:.1f} | {figures['batch_times_flat']:.1f} |"
    )


def processor() -> str:
    """The class of processor, without its name."""
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    vectors = next((name for name in ("avx512f", "avx2") if name in flags), platform.machine())
    return {"avx512f": "x86-64 with AVX-512", "avx2": "x86-64 with AVX2"}.get(vectors, vectors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("embeddings", type=Path, help="folder written by `embed` and `embed-manifest`")
    parser.add_argument("work", type=Path, help="folder for the made vectors and the indexes")
    parser.add_argument("--queries", type=Path, help="query vectors, .npy; default: made ones")
    parser.add_argument("--rows", type=int, action="append", help="vectors; give it once for each size")
    parser.add_argument("--kind", action="append", choices=get_args(INDEX_KINDS), help="default: all")
    parser.add_argument("--parameter", action="append", default=[], help="KIND.NAME=NUMBER, such as hnsw.M=16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--singles", type=int, default=16, help="single queries of a round")
    parser.add_argument("--write", action="store_true", help="store the last size's figures for `index plan`")
    options = parser.parse_args()

    kinds: dict[str, dict[str, int]] = {kind: {} for kind in options.kind or get_args(INDEX_KINDS)}
    for entry in options.parameter:
        target, _, value = entry.partition("=")
        kind, _, name = target.partition(".")
        kinds[kind][name] = int(value)
    source = Embeddings(options.embeddings)
    real = np.concatenate(list(source.blocks()))
    queries = np.load(options.queries) if options.queries else made_rows(real, 500, SEED - 1 + 2**31)
    threads = faiss.omp_get_max_threads()
    print(f"{threads} thread(s), {processor()}, faiss {faiss.__version__}; {len(real)} real vectors")
    print(f"{len(queries)} queries ({options.queries or 'made as the vectors are'})\n")
    print("| kind | vectors | parameters | bytes a vector | build, s | recall@3 | recall@10"
          " | queries/s, single | times flat | queries/s, batches of 64 | times flat |")  # fmt: skip
    print("|---|" + "---:|" * 10)
    for rows in options.rows or [100_000]:
        folder = options.work / str(rows)
        embeddings = made_embeddings(source, folder / "embeddings", rows)
        found = measured(kinds, embeddings, np.ascontiguousarray(queries), folder, options.rounds, options.singles)
    if options.write:
        note = {
            "processor": processor(),
            "threads": threads,
            "date": str(date.today()),
            "faiss": faiss.__version__,
            "dim": source.dim,
            "kinds": found,
        }
        write_text(CALIBRATION, yaml.safe_dump(note, sort_keys=False))
        print(f"written: {CALIBRATION}")


if __name__ == "__main__":
    main()
