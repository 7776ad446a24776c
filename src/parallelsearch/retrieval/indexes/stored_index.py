"""index.faiss and its manifest: built from embeddings, measured against exact search, opened with its own corpus."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from parallelsearch.config import IndexConfig
from parallelsearch.corpus.passages import PASSAGES, Corpus
from parallelsearch.errors import DataError
from parallelsearch.files import MANIFEST, read_json, replacing, sha256, write_json
from parallelsearch.machine.preflight import disk_available, memory_available, require_space
from parallelsearch.retrieval.encoding.embeddings import (
    EMBED_AGAIN,
    Embeddings,
    encoder_identity,
    relative_to,
    require_same,
    require_same_encoder,
)
from parallelsearch.retrieval.indexes.building import build_index
from parallelsearch.retrieval.indexes.gpus import MOST_NEIGHBOURS, require_gpu_kind, to_all_gpus
from parallelsearch.retrieval.indexes.kinds import (
    EXACT_KINDS,
    IVF_KINDS,
    apply_search_parameters,
    complete_parameters,
)
from parallelsearch.retrieval.indexes.plan import build_bytes, index_bytes, smaller_kind
from parallelsearch.retrieval.indexes.quality import SCORE_NOISE, measure

INDEX = "index.faiss"
SELF_RETRIEVAL_FLOOR = 0.9
LENGTH_TOLERANCE = 0.01
REBUILD = "rerun `parallelsearch index build`"
WHOLE_FILE_CHECK_BYTES = 512 * 2**20


def write_index(corpus_dir: Path, embeddings_dir: Path, out_dir: Path, config: IndexConfig) -> dict[str, Any]:
    """Builds index.faiss and, last, manifest.json in `out_dir`; returns the manifest.

    The encoder is the one that the embeddings' manifest points to.

    Raises MismatchError when corpus, encoder and embeddings do not belong together, ConfigError for impossible
    parameters, ResourceError when memory or disk is too small, and DataError when too few passages find themselves in
    the finished index.
    """
    import faiss

    corpus, embeddings, out_dir = Corpus(corpus_dir), Embeddings(embeddings_dir), Path(out_dir)
    encoder_dir = embeddings.encoder_dir
    encoder = read_json(encoder_dir / MANIFEST)
    check_embeddings(embeddings, corpus, encoder_dir, encoder)
    require_room(config, len(embeddings), embeddings.dim, out_dir)
    built = build_index(config, embeddings)
    quality = measure(built.index, embeddings)
    floor = 1.0 if config.kind in EXACT_KINDS else SELF_RETRIEVAL_FLOOR
    if quality["self_retrieval"] < floor:
        _require_unit_length(embeddings)
        raise DataError(
            f"only {quality['self_retrieval']:.3f} of {quality['sample']} passages find themselves in the {config.kind}"
            f" index with {built.parameters}, at least {floor} should; raise nprobe, efSearch or m, or embed again."
        )
    out_dir.mkdir(parents=True, exist_ok=True)
    (out_dir / MANIFEST).unlink(missing_ok=True)
    for abandoned in out_dir.glob(f".{INDEX}.*.partial"):  # of a run that was killed
        abandoned.unlink()
    with replacing(out_dir / INDEX) as partial:
        faiss.write_index(built.index, str(partial))
    manifest = {
        "kind": config.kind,
        "parameters": built.parameters,
        "device": config.device,
        "ntotal": built.index.ntotal,
        "dim": embeddings.dim,
        "metric": "inner_product",
        "quality": quality,
        "sha256": sha256(out_dir / INDEX),
        "bytes": (out_dir / INDEX).stat().st_size,
        "corpus": {"path": relative_to(corpus.folder, out_dir), "sha256": corpus.sha256, "rows": len(corpus)},
        "encoder": {"path": relative_to(encoder_dir, out_dir), "identity": encoder_identity(encoder)},
        "embeddings": {
            "path": relative_to(embeddings.folder, out_dir),
            "sha256": [shard["sha256"] for shard in embeddings.manifest["shards"]],
        },
        "faiss": faiss.__version__,
    }
    write_json(out_dir / MANIFEST, manifest)
    return manifest


def _require_unit_length(embeddings: Embeddings) -> None:
    lengths = np.concatenate([np.linalg.norm(block, axis=1) for block in embeddings.blocks()])
    if lengths.min() < 1 - LENGTH_TOLERANCE or lengths.max() > 1 + LENGTH_TOLERANCE:
        raise DataError(
            f"{embeddings.folder}: vectors have lengths from {lengths.min():.3f} to {lengths.max():.3f}, not 1, so that"
            f" long ones win every search; declare normalize: true for the encoder and {EMBED_AGAIN}."
        )


def check_embeddings(embeddings: Embeddings, corpus: Corpus, encoder_dir: Path, encoder: dict[str, Any]) -> None:
    """MismatchError unless the embeddings were made from this corpus by this encoder."""
    again = "rerun `parallelsearch embed` and `parallelsearch embed-manifest`"
    found = embeddings.manifest
    require_same("corpus sha256", embeddings.folder, found["corpus_sha256"], corpus.folder, corpus.sha256, again)
    require_same("rows", embeddings.folder, found["rows"], corpus.folder, len(corpus), again)
    require_same_encoder(embeddings.folder, found["encoder"], encoder_dir, encoder_identity(encoder), again)


def require_room(config: IndexConfig, rows: int, dim: int, out_dir: Path) -> None:
    """ConfigError unless the index can be built, ResourceError unless memory and disk hold it."""
    kind, parameters = config.kind, complete_parameters(config, rows, dim)
    if config.device == "cuda":
        require_gpu_kind(kind, parameters)
    what = f"building the {kind} index of {rows} vectors of {dim}"
    memory = memory_available()
    step = smaller_kind(rows, dim, memory.bytes, build=True)
    require_space(build_bytes(kind, rows, dim, parameters), memory, what, step)
    step = "free some, or choose another folder of results"
    require_space(index_bytes(kind, rows, dim, parameters), disk_available(out_dir), what, step)


class StoredIndex:
    """An opened index with the corpus it belongs to; every check is done before the first search."""

    def __init__(self, folder: Path, device: str | None = None, shared: bool = True) -> None:
        """Opens an index folder and the corpus that its manifest names.

        device: cpu or cuda, where it is searched; None: as the manifest says. shared: the file is memory-mapped, so
        that all processes on a machine that open it hold it once, and a process reads what it searches; otherwise this
        process reads all of it into memory of its own.

        Raises MismatchError or DataError for parts that do not belong together or are broken, ResourceError when memory
        is too small, and ConfigError for a GPU search that cannot be had.
        """
        import faiss

        self.folder = Path(folder)
        self.manifest: dict[str, Any] = read_json(self.folder / MANIFEST)
        self.kind: str = self.manifest["kind"]
        self.encoder_dir = self._resolve("encoder")
        self.corpus = Corpus(self._resolve("corpus"))
        self._check_parts()
        path, parameters = self.folder / INDEX, self.manifest["parameters"]
        memory = memory_available()
        what, step = f"opening {path}", smaller_kind(len(self.corpus), self.manifest["dim"], memory.bytes, build=False)
        require_space(self.manifest["bytes"], memory, what, step)
        try:
            self.index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC if shared else 0)
        except RuntimeError as error:
            reason = str(error).splitlines()[-1]
            raise DataError(f"{path} is truncated or broken ({reason}); {REBUILD}.") from None
        require_same("ntotal", path, self.index.ntotal, self.corpus.path, len(self.corpus), REBUILD)
        require_same("dimension", path, self.index.d, self.encoder_dir, self.manifest["dim"], REBUILD)
        apply_search_parameters(self.index, self.kind, parameters)
        self._on_gpus: Any = None
        if (device or self.manifest.get("device")) == "cuda":
            self._on_gpus = to_all_gpus(self.index, self.kind, parameters)
            if self.kind in IVF_KINDS:  # scores are computed here, from what the file holds
                faiss.extract_index_ivf(self.index).make_direct_map()

    def search(self, vectors: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """Scores (float64) and ids [len(vectors), min(top_k, ntotal)], best first, equal scores by ascending id.

        A score is the inner product of the query and the passage's vector as the index stores it: exact for all kinds
        but flat_int8 and ivf_pq, whose vectors are rounded. It is recomputed from the stored vectors, so that
        duplicates tie exactly whatever the batch; places that an approximate index cannot fill hold id -1 and score
        -inf.
        """
        k = min(top_k, self.index.ntotal)
        widest = self.index.ntotal if self._on_gpus is None else max(k, min(self.index.ntotal, MOST_NEIGHBOURS))
        wide = min(k + 8, widest)
        while True:
            approximate, ids, stored = self._candidates(vectors, wide)
            boundary = approximate[:, k - 1] - approximate[:, -1] > SCORE_NOISE
            if wide == widest or bool(boundary.all()):
                break
            wide = min(wide * 2, widest)
        scores = np.round(np.einsum("nkd,nd->nk", stored.astype(np.float64), vectors.astype(np.float64)), 9)
        scores[ids < 0] = -np.inf
        order = np.lexsort((ids, -scores))[:, :k]
        return np.take_along_axis(scores, order, axis=1), np.take_along_axis(ids, order, axis=1)

    def _candidates(self, vectors: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """FAISS' own scores and ids [queries, count] and the stored vectors [queries, count, dim] of these ids."""
        if self._on_gpus is None:
            scores, ids, stored = self.index.search_and_reconstruct(vectors, count)
            return scores, ids, np.where(ids[..., None] < 0, 0, stored)
        scores, ids = self._on_gpus.search(vectors, count)
        stored = np.zeros((*ids.shape, self.index.d), dtype=np.float32)
        stored[ids >= 0] = self.index.reconstruct_batch(ids[ids >= 0])
        return scores, ids, stored

    def _resolve(self, part: str) -> Path:
        return Path(os.path.normpath(self.folder / self.manifest[part]["path"]))

    def _check_parts(self) -> None:
        path, manifest = self.folder / INDEX, self.manifest
        corpus, recorded = self.corpus, manifest["corpus"]
        require_same("corpus sha256", self.folder, recorded["sha256"], corpus.folder, corpus.sha256, REBUILD)
        require_same("ntotal", self.folder, manifest["ntotal"], corpus.folder, len(corpus), REBUILD)
        encoder = encoder_identity(read_json(self.encoder_dir / MANIFEST))
        require_same("dimension", self.folder, manifest["dim"], self.encoder_dir, encoder["dim"], REBUILD)
        require_same_encoder(self.folder, manifest["encoder"]["identity"], self.encoder_dir, encoder, REBUILD)
        if not path.is_file():
            raise DataError(f"{path} is missing; {REBUILD}.")
        for file, owner in ((path, manifest), (corpus.folder / PASSAGES, corpus.manifest)):
            size = file.stat().st_size
            require_same("size in bytes", file, size, file.parent / MANIFEST, owner["bytes"], "rebuild it")
            if size <= WHOLE_FILE_CHECK_BYTES:
                require_same("sha256", file, sha256(file), file.parent / MANIFEST, owner["sha256"], "rebuild it")
