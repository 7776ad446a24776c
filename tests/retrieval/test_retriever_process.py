"""The retriever server of a training job: it starts, answers, ends with the job, and says why it could not start."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from parallelsearch.errors import RetrieverError
from parallelsearch.retrieval.serving.client import HttpRetriever
from parallelsearch.training.retriever_process import served_index


def test_a_job_gets_a_server_that_ends_with_it(study, tmp_path) -> None:
    with served_index(study.index, tmp_path, wait_seconds=120) as url:
        assert url.startswith("http://127.0.0.1:")
        (hits,) = asyncio.run(HttpRetriever(url).search(["a long list of items"], 2))
        assert len(hits) == 2
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health", timeout=2)


def test_a_server_that_cannot_start_is_an_error_that_names_its_log(tmp_path) -> None:
    with (
        pytest.raises(RetrieverError, match=r"ended with exit code 1; see .*retriever.log"),
        served_index(tmp_path / "no-index", tmp_path),
    ):
        pass
    assert "no-index" in (tmp_path / "retriever.log").read_text()
