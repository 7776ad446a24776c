"""The retriever server of a training job: it starts, answers, ends with the job, and says why it could not start."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx
import psutil
import pytest

from parallelsearch.errors import MismatchError, RetrieverError
from parallelsearch.files import read_json, write_json
from parallelsearch.records import Hit
from parallelsearch.retrieval.serving.client import HttpRetriever
from parallelsearch.training.process.retriever_process import served_index, shared_url
from parallelsearch.training.process.server_process import server_process


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


def test_a_killed_server_is_started_again_at_the_same_url(study, tmp_path, capsys) -> None:
    with served_index(study.index, tmp_path, wait_seconds=120) as url:
        [first] = _servers(tmp_path)
        first.kill()
        gone_by = time.monotonic() + 60
        while [process.pid for process in _servers(tmp_path)] in ([], [first.pid]):
            assert time.monotonic() < gone_by
            time.sleep(0.1)
        (hits,) = asyncio.run(_patient_search(url))
        assert len(hits) == 2
    assert "ended with exit code -9; restart 1 of 3" in capsys.readouterr().out
    assert _servers(tmp_path) == []


def test_several_jobs_share_a_server_that_has_a_readiness_file_for_their_index(study, tmp_path, capsys) -> None:
    arguments = ["retriever", "serve", "--index", str(study.index), "--host", "127.0.0.1"]
    shared, log = study.index / "retriever.json", tmp_path / "shared.log"
    with server_process(arguments, shared, log, "The shared retriever", RetrieverError, 120) as url:
        assert read_json(shared)["index_sha256"] == read_json(study.index / "manifest.json")["sha256"]
        with served_index(study.index, tmp_path / "a") as first, served_index(study.index, tmp_path / "b") as second:
            assert first == second == url
        assert f"shared retriever at {url}" in capsys.readouterr().out
        asyncio.run(HttpRetriever(url).search(["still there"], 1))
        write_json(shared, read_json(shared) | {"index_sha256": "0" * 64})
        with pytest.raises(MismatchError, match=r"serves the index 000000000000, but the index there is .* start that"):
            shared_url(study.index)
    assert not shared.exists() and shared_url(study.index) is None


def test_a_readiness_file_whose_server_is_gone_is_passed_over(study) -> None:
    file = study.index / "retriever.json"
    write_json(file, {"host": "127.0.0.1", "port": 9, "url": "http://127.0.0.1:9", "index_sha256": "0" * 64})
    try:
        assert shared_url(study.index) is None
    finally:
        file.unlink()


def _servers(folder: Path) -> list[psutil.Process]:
    """Servers whose readiness file lies in `folder`."""
    wanted = str(folder / "retriever.json")
    return [process for process in psutil.process_iter() if wanted in _command(process)]


def _command(process: psutil.Process) -> list[str]:
    try:
        return [] if process.status() == psutil.STATUS_ZOMBIE else process.cmdline()
    except psutil.NoSuchProcess:
        return []


async def _patient_search(url: str) -> list[list[Hit]]:
    """As an agent asks: again, while nobody is there."""
    end = time.monotonic() + 60
    while True:
        try:
            return await HttpRetriever(url).search(["a long list of items"], 2)
        except RetrieverError:
            assert time.monotonic() < end
            await asyncio.sleep(0.2)
