"""BM25 over title and text, by bm25s: the corpus is read once, the index is reopened memory-mapped.

Score of a passage: the sum over the query's words of idf * tf / (tf + k1 * (1 - b + b * length / mean length)), with
idf = ln(1 + (N - df + 0.5) / (df + 0.5)): Lucene's variant (Kamphuis et al., ECIR 2020), without its constant k1 + 1.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from parallelsearch.config import Bm25Config
from parallelsearch.corpus.passages import Corpus
from parallelsearch.errors import DataError
from parallelsearch.files import MANIFEST, read_json, replacing, sha256, write_json
from parallelsearch.retrieval.encoding.embeddings import require_same
from parallelsearch.retrieval.encoding.encoder import passage_text
from parallelsearch.retrieval.indexes.parts import check_file, combined_sha256, corpus_part, open_corpus

FOLDER = "bm25"  # what bm25s saved, beside the manifest
METHOD = "lucene"
PATTERN = r"(?u)\b\w\w+\b"
PASSAGES_PER_BLOCK = 8192
SAMPLE, SAMPLE_SEED = 200, 0
SELF_RETRIEVAL_FLOOR = 0.9
REBUILD = "rerun `parallelsearch index bm25`"


class Words:
    """Text -> the words that are counted: lower case, at least two letters or digits, no stopwords, stemmed."""

    def __init__(self, stemmer: str, stopwords: str) -> None:
        import Stemmer

        self._stemmer = None if stemmer == "none" else Stemmer.Stemmer(stemmer)
        self._stopwords = None if stopwords == "none" else stopwords

    def __call__(self, texts: Sequence[str]) -> list[list[str]]:
        import bm25s

        words: list[list[str]] = bm25s.tokenize(
            list(texts),
            token_pattern=PATTERN,
            stopwords=self._stopwords,
            stemmer=self._stemmer,
            return_ids=False,
            show_progress=False,
        )
        return words


def write_bm25(corpus_dir: Path, out_dir: Path, config: Bm25Config) -> dict[str, Any]:
    """Builds `out_dir`/bm25/ and, last, manifest.json; returns the manifest.

    While it is built, 4 bytes a word of the corpus and about 30 a different word of each passage are in memory. Raises
    DataError when no passage has a word, or when too few passages find themselves in the finished index.
    """
    import bm25s

    corpus, out_dir = Corpus(corpus_dir), Path(out_dir)
    rows, vocabulary = _word_ids(corpus, Words(config.stemmer, config.stopwords))
    if not vocabulary:
        raise DataError(f"{corpus.path} has no words to index; check its source, or set index.bm25.stopwords to none.")
    index = bm25s.BM25(k1=config.k1, b=config.b, method=METHOD, csc_backend="scipy")
    index.index((rows, vocabulary), create_empty_token=False, show_progress=False)
    out_dir.mkdir(parents=True, exist_ok=True)
    (out_dir / MANIFEST).unlink(missing_ok=True)
    with replacing(out_dir / FOLDER) as partial:
        index.save(partial, show_progress=False)
    saved = sorted((out_dir / FOLDER).iterdir())
    files: dict[str, dict[str, Any]] = {
        path.name: {"sha256": sha256(path), "bytes": path.stat().st_size} for path in saved
    }
    manifest = {
        "kind": "bm25",
        "parameters": {"method": METHOD, "k1": config.k1, "b": config.b},
        "words": {"pattern": PATTERN, "lower": True, "stopwords": config.stopwords, "stemmer": config.stemmer},
        "ntotal": len(corpus),
        "vocabulary": len(vocabulary),
        "sha256": combined_sha256(files),
        "bytes": sum(file["bytes"] for file in files.values()),
        "files": files,
        "corpus": corpus_part(corpus, out_dir),
        "bm25s": version("bm25s"),
        "PyStemmer": version("PyStemmer"),
    }
    quality = measure_bm25(StoredBm25(out_dir, manifest))
    if quality["self_retrieval"] < SELF_RETRIEVAL_FLOOR:
        raise DataError(
            f"only {quality['self_retrieval']:.3f} of {quality['sample']} passages find themselves in the BM25 index of"
            f" {corpus.folder}, at least {SELF_RETRIEVAL_FLOOR} should; check the corpus and index.bm25."
        )
    manifest["quality"] = quality
    write_json(out_dir / MANIFEST, manifest)
    return manifest


class StoredBm25:
    """An opened BM25 index with the corpus it belongs to; every check is done before the first search."""

    def __init__(self, folder: Path, manifest: dict[str, Any] | None = None) -> None:
        """`manifest`: of an index that is just being built; else it is read from the folder."""
        import bm25s

        self.folder = Path(folder)
        self.manifest = manifest or read_json(self.folder / MANIFEST)
        self.corpus = open_corpus(self.folder, self.manifest, REBUILD)
        for name, recorded in self.manifest["files"].items():
            check_file(self.folder / FOLDER / name, recorded, self.folder / MANIFEST, REBUILD)
        try:
            self.index = bm25s.BM25.load(self.folder / FOLDER, mmap=True, show_progress=False)
        except (OSError, EOFError, ValueError, KeyError) as error:
            raise DataError(f"{self.folder / FOLDER} is broken ({error}); {REBUILD}.") from None
        rows = self.index.scores["num_docs"]
        require_same("number of passages", self.folder / FOLDER, rows, self.corpus.path, len(self.corpus), REBUILD)
        words = self.manifest["words"]
        self.words = Words(words["stemmer"], words["stopwords"])

    def search(self, queries: Sequence[str], top_k: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Scores and ids of each query, best first, equal scores by ascending id.

        At most `top_k`; only passages with a word of the query, so a query without any known word has none.
        """
        vocabulary = self.index.vocab_dict
        known = ([vocabulary[word] for word in words if word in vocabulary] for words in self.words(queries))
        return [self._best(ids, top_k) for ids in known]

    def _best(self, word_ids: list[int], top_k: int) -> tuple[np.ndarray, np.ndarray]:
        if not word_ids:
            return np.zeros(0), np.zeros(0, dtype=np.int64)
        scores = self.index.get_scores_from_ids(word_ids)
        ids = np.flatnonzero(scores)
        found = scores[ids]
        if len(ids) > top_k:  # bm25s' own selection is not stable: which of equal scores it keeps is left to chance
            enough = found >= np.partition(found, -top_k)[-top_k]
            ids, found = ids[enough], found[enough]
        order = np.argsort(-found, kind="stable")[:top_k]
        return found[order].astype(np.float64), ids[order]


def measure_bm25(index: StoredBm25) -> dict[str, Any]:
    """self_retrieval: share of a seeded sample of passages that their own text finds first (or an equal text)."""
    corpus = index.corpus
    rows = np.random.default_rng(SAMPLE_SEED).choice(len(corpus), min(SAMPLE, len(corpus)), replace=False)
    texts = [passage_text(corpus[int(row)]) for row in rows]
    firsts = [ids[:1].tolist() for _, ids in index.search(texts, 1)]
    same = [any(passage_text(corpus[first]) == text for first in ids) for ids, text in zip(firsts, texts, strict=True)]
    return {"self_retrieval": round(sum(same) / len(same), 4), "sample": len(rows)}


def _word_ids(corpus: Corpus, words: Words) -> tuple[list[array[int]], dict[str, int]]:
    """The words of every passage as numbers, and the number of each word in the order of first appearance."""
    from rich.progress import track

    vocabulary: dict[str, int] = {}
    rows: list[array[int]] = []
    blocks = corpus.rows(0, len(corpus), PASSAGES_PER_BLOCK)
    for passages in track(blocks, "BM25", total=-(-len(corpus) // PASSAGES_PER_BLOCK), transient=True):
        for row in words([passage_text(passage) for passage in passages]):
            rows.append(array("i", [vocabulary.setdefault(word, len(vocabulary)) for word in row]))
    return rows, vocabulary
