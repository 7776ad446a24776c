"""3,000 vectors that every test of an index kind may use."""

from __future__ import annotations

import pytest
from vectors import embeddings_of, topical

from parallelsearch.retrieval.encoding.embeddings import Embeddings

ROWS, DIM = 3000, 24


@pytest.fixture(scope="session")
def clustered(tmp_path_factory: pytest.TempPathFactory) -> Embeddings:
    return embeddings_of(topical(ROWS, DIM), tmp_path_factory.mktemp("clustered"))
