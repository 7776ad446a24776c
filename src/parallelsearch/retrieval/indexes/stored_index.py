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
from parallelsearch.retrieval.encoding.embeddings import (
    Embeddings,
    encoder_identity,
    relative_to,
    require_same,
    require_same_encoder,
)
from parallelsearch.retrieval.indexes.kinds import (
    EXACT_KINDS,
    apply_search_parameters,
    build_index,
    exact_neighbours,
)

INDEX = "index.faiss"
RECALL_AT = 10
SAMPLE = 200
SAMPLE_SEED = 0
SCORE_TOLERANCE = 2e-3  # float16 rounding of two L2-normalised vectors; a hit this close to the exact one is as good
SAME_PASSAGE_DISTANCE = 0.03  # vectors of one text in batches of different size are closer
SCORE_NOISE = 1e-5  # float32 inner products of equal vectors differ by less, whatever the batch
SELF_RETRIEVAL_FLOOR = 0.9
REBUILD = "rerun `parallelsearch index build`"
WHOLE_FILE_CHECK_BYTES = 512 * 2**20


def write_index(corpus_dir: Path, embeddings_dir: Path, out_dir: Path, config: IndexConfig) -> dict[str, Any]:
    """Builds index.faiss and, last, manifest.json in `out_dir`; returns the manifest.

    The encoder is the one that the embeddings' manifest points to.

    Raises MismatchError when corpus, encoder and embeddings do not belong together, and DataError when too few
    passages find themselves in the finished index.
    """
    import faiss

    corpus, embeddings, out_dir = Corpus(corpus_dir), Embeddings(embeddings_dir), Path(out_dir)
    encoder_dir = embeddings.encoder_dir
    encoder = read_json(encoder_dir / MANIFEST)
    check_embeddings(embeddings, corpus, encoder_dir, encoder)
    built = build_index(config, embeddings)
    quality = measure(built.index, embeddings)
    floor = 1.0 if config.kind in EXACT_KINDS else SELF_RETRIEVAL_FLOOR
    if quality["self_retrieval"] < floor:
        raise DataError(
            f"only {quality['self_retrieval']:.3f} of {quality['sample']} passages find themselves in the {config.kind}"
            f" index with {built.parameters}, at least {floor} should; raise nprobe or efSearch, or embed again."
        )
    out_dir.mkdir(parents=True, exist_ok=True)
    (out_dir / MANIFEST).unlink(missing_ok=True)
    with replacing(out_dir / INDEX) as partial:
        faiss.write_index(built.index, str(partial))
    manifest = {
        "kind": config.kind,
        "parameters": built.parameters,
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


def check_embeddings(embeddings: Embeddings, corpus: Corpus, encoder_dir: Path, encoder: dict[str, Any]) -> None:
    """MismatchError unless the embeddings were made from this corpus by this encoder."""
    again = "rerun `parallelsearch embed` and `parallelsearch embed-manifest`"
    found = embeddings.manifest
    require_same("corpus sha256", embeddings.folder, found["corpus_sha256"], corpus.folder, corpus.sha256, again)
    require_same("rows", embeddings.folder, found["rows"], corpus.folder, len(corpus), again)
    require_same_encoder(embeddings.folder, found["encoder"], encoder_dir, encoder_identity(encoder), again)


def measure(index: Any, embeddings: Embeddings) -> dict[str, Any]:
    """Quality on a seeded sample of passages used as queries.

    recall: share of the RECALL_AT exact neighbours' places filled by passages that score as high as the last exact one;
    self_retrieval: share of passages whose first hit is themselves or a duplicate (the same vector up to rounding).
    """
    rows = np.random.default_rng(SAMPLE_SEED).choice(len(embeddings), min(SAMPLE, len(embeddings)), replace=False)
    queries = embeddings.take(rows)
    k = min(RECALL_AT, len(embeddings))
    exact_scores, _ = exact_neighbours(embeddings, queries, k)
    _, ids = index.search(queries, k)
    scores = np.full(ids.shape, -np.inf, dtype=np.float32)
    for number, found in enumerate(ids):
        valid = found >= 0
        scores[number, valid] = embeddings.take(found[valid]) @ queries[number]
    first = embeddings.take(np.maximum(ids[:, 0], 0))
    same = (ids[:, 0] == rows) | (np.linalg.norm(first - queries, axis=1) < SAME_PASSAGE_DISTANCE)
    return {
        "recall_at": k,
        "recall": round(float((scores >= exact_scores[:, -1:] - SCORE_TOLERANCE).mean()), 4),
        "self_retrieval": round(float(same.mean()), 4),
        "sample": len(rows),
    }


class StoredIndex:
    """An opened index with the corpus it belongs to; every check is done before the first search."""

    def __init__(self, folder: Path) -> None:
        import faiss

        self.folder = Path(folder)
        self.manifest: dict[str, Any] = read_json(self.folder / MANIFEST)
        self.encoder_dir = self._resolve("encoder")
        self.corpus = Corpus(self._resolve("corpus"))
        self._check_parts()
        path = self.folder / INDEX
        try:
            self.index = faiss.read_index(str(path))
        except RuntimeError as error:
            reason = str(error).splitlines()[-1]
            raise DataError(f"{path} is truncated or broken ({reason}); {REBUILD}.") from None
        require_same("ntotal", path, self.index.ntotal, self.corpus.path, len(self.corpus), REBUILD)
        require_same("dimension", path, self.index.d, self.encoder_dir, self.manifest["dim"], REBUILD)
        apply_search_parameters(self.index, self.manifest["kind"], self.manifest["parameters"])

    def search(self, vectors: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """Scores (float64) and ids [len(vectors), min(top_k, ntotal)], best first, equal scores by ascending id.

        Scores are recomputed from the stored vectors, so that duplicates tie exactly whatever the batch; places that an
        approximate index cannot fill hold id -1 and score -inf.
        """
        k = min(top_k, self.index.ntotal)
        wide = min(k + 8, self.index.ntotal)
        while True:
            approximate, ids = self.index.search(vectors, wide)
            boundary = approximate[:, k - 1] - approximate[:, -1] > SCORE_NOISE
            if wide == self.index.ntotal or bool(boundary.all()):
                break
            wide = min(wide * 2, self.index.ntotal)
        scores = self._exact_scores(vectors, ids)
        order = np.lexsort((ids, -scores))[:, :k]
        return np.take_along_axis(scores, order, axis=1), np.take_along_axis(ids, order, axis=1)

    def _exact_scores(self, vectors: np.ndarray, ids: np.ndarray) -> np.ndarray:
        known = ids.ravel() >= 0
        scores = np.full(ids.size, -np.inf)
        stored = self.index.reconstruct_batch(ids.ravel()[known]).astype(np.float64)
        asked = np.repeat(vectors.astype(np.float64), ids.shape[1], axis=0)[known]
        scores[known] = np.round(np.einsum("nd,nd->n", stored, asked), 9)
        return scores.reshape(ids.shape)

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
