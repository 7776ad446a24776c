"""BM25 over title and text, by bm25s: the corpus is read once, the index is reopened memory-mapped.

Score of a passage: the sum over the query's words of idf * tf / (tf + k1 * (1 - b + b * length / mean length)), with
idf = ln(1 + (N - df + 0.5) / (df + 0.5)): Lucene's variant (Kamphuis et al., ECIR 2020), without its constant k1 + 1.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from parallelsearch.config import Bm25Config
from parallelsearch.corpus.passages import Corpus
from parallelsearch.errors import DataError, MismatchError
from parallelsearch.files import MANIFEST, read_json, replacing, sha256, write_json
from parallelsearch.retrieval.encoding.embeddings import require_same
from parallelsearch.retrieval.encoding.encoder import passage_text
from parallelsearch.retrieval.indexes.bm25_words import RULE, Words
from parallelsearch.retrieval.indexes.excerpts import a_word, has_word, other_form
from parallelsearch.retrieval.indexes.parts import check_file, combined_sha256, corpus_part, open_corpus

FOLDER = "bm25"  # what bm25s saved, beside the manifest
METHOD = "lucene"
PASSAGES_PER_BLOCK = 8192
SAMPLE, SAMPLE_SEED = 200, 0
WORD_TOP_K = 10
FLOOR = 0.9
SAMPLED = {"self_retrieval": "sample", "word_retrieval": "words"}  # of what each is the share
REBUILD = "rerun `parallelsearch index bm25`"


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
        "words": {"rule": RULE, "stopwords": config.stopwords, "stemmer": config.stemmer},
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
    for share, find in (("self_retrieval", "passages find themselves"), ("word_retrieval", "words find a passage")):
        if quality[share] < FLOOR:
            raise DataError(
                f"only {quality[share]:.3f} of {quality[SAMPLED[share]]} {find} in the BM25 index of {corpus.folder},"
                f" at least {FLOOR} should; check the corpus and index.bm25."
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
        if words.get("rule") != RULE:
            raise MismatchError(
                f"{self.folder} was made by another rule of words ({words.get('rule', 'an older one')}) than that of"
                f" this version ({RULE}); {REBUILD}."
            )
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
    """Of seeded samples: how many passages, and how many of their words, are found.

    self_retrieval: share of passages that their own text finds first (or an equal text). word_retrieval: share of
    words (see `a_word`; in the other Unicode form) of which a passage that has them is among the first hits.
    """
    corpus, rng = index.corpus, np.random.default_rng(SAMPLE_SEED)
    rows = rng.choice(len(corpus), min(SAMPLE, len(corpus)), replace=False)
    texts = [passage_text(corpus[int(row)]) for row in rows]
    drawn = [a_word(texts[number % len(texts)], rng) for number in range(SAMPLE)]
    words = [word for word in drawn if word]

    def found(queries: list[str], top_k: int) -> Iterator[list[str]]:
        for _, ids in index.search(queries, top_k):
            yield [passage_text(corpus[int(row)]) for row in ids]

    own = [text in hits for text, hits in zip(texts, found(texts, 1), strict=True)]
    first = found([other_form(word) for word in words], WORD_TOP_K)
    known = [any(has_word(hit, word) for hit in hits) for word, hits in zip(words, first, strict=True)]
    return {
        "self_retrieval": round(sum(own) / len(own), 4),
        "word_retrieval": round(sum(known) / max(1, len(known)), 4),
        "sample": len(rows),
        "words": len(words),
    }


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
