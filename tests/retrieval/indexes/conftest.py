"""Vectors that every test of an index kind may use, and a study large enough for all kinds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_study import Study
from vectors import embeddings_of, topical

from parallelsearch.corpus.passages import build_corpus
from parallelsearch.files import MANIFEST, read_json, sha256, write_json
from parallelsearch.retrieval.encoding.embeddings import Embeddings, encoder_identity

ROWS, DIM = 3000, 24
PASSAGES = 600
TWINS = (7, 599)  # two passages with the same vector


@pytest.fixture(scope="session")
def clustered(tmp_path_factory: pytest.TempPathFactory) -> Embeddings:
    return embeddings_of(topical(ROWS, DIM), tmp_path_factory.mktemp("clustered"))


@pytest.fixture(scope="session")
def larger_study(tmp_path_factory: pytest.TempPathFactory, encoder_dir: Path) -> Study:
    """600 passages under the real encoder's name, with made vectors; two of them are alike."""
    made = Study(tmp_path_factory.mktemp("larger"))
    made.encoder.symlink_to(encoder_dir)
    lines = [json.dumps({"id": n, "title": f"Passage {n}", "text": f"text {n}"}) for n in range(PASSAGES)]
    (made.root / "raw.jsonl").write_text("\n".join(lines), encoding="utf-8")
    build_corpus("geoworld", made.root / "raw.jsonl", made.corpus)
    identity = encoder_identity(read_json(made.encoder / MANIFEST))
    vectors = topical(PASSAGES, identity["dim"])
    vectors[TWINS[1]] = vectors[TWINS[0]]
    made.embeddings.mkdir()
    manifest = embeddings_of(vectors, made.embeddings, shards=2).manifest
    shards = [{**shard, "sha256": sha256(made.embeddings / shard["file"])} for shard in manifest["shards"]]
    corpus = read_json(made.corpus / MANIFEST)["sha256"]
    known = {"encoder": identity, "encoder_path": "../encoder", "corpus_sha256": corpus}
    write_json(made.embeddings / MANIFEST, {**manifest, **known, "shards": shards})
    return made
