"""The collected store in MLflow's own web page: the arms in the list of runs, and a trace with its spans."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import real_study
from browser import chromium
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from parallelsearch.paths import Results
from parallelsearch.tracking.collect import collect
from parallelsearch.tracking.store import Store

pytestmark = pytest.mark.slow
PATIENCE = 180  # seconds; the server imports most of MLflow


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def server(results: Results, store: Store, tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Address of a server over the collected store, and the run of each arm; stopped by its process id."""
    summary = collect(results.root, real_study.TRACKING)
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store.uri]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    with (tmp_path / "server.log").open("w") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=tmp_path,
            env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"},
            start_new_session=True,
        )
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(f"{address}/health", process, tmp_path / "server.log")
        yield f"{address}/#/experiments/{store.experiment_id}", {run["arm"]: run["run_id"] for run in summary["runs"]}
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def wait_for(url: str, process: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    pytest.fail(f"the MLflow server did not start:\n{log.read_text()[-2000:]}")


def shows(browser: Chrome, *texts: str) -> str:
    """Waits until the page shows all `texts`; returns what it shows."""

    def found(browser: Chrome) -> str | None:
        text = browser.find_element(By.TAG_NAME, "body").text
        return text if all(part in text for part in texts) else None

    return WebDriverWait(browser, PATIENCE).until(found, f"not shown together: {texts}")


def test_the_runs_of_all_arms_and_the_spans_of_a_trace_are_seen(
    server: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    experiment, runs = server
    with chromium(tmp_path / "profile", width=1500) as browser:
        browser.get(f"{experiment}/runs")
        text = shows(browser, *(f"{arm} seed 0" for arm in runs))
        assert len(runs) == 5
        assert "5 matching runs" in text

        browser.get(f"{experiment}/runs/{runs['parallelsearch']}/traces")
        shows(browser, "Which Walt Disney film was produced first")
        row = browser.find_element(
            By.XPATH,
            "//tr[contains(., 'Which Walt Disney film')] | //div[@role='row'][contains(., 'Which Walt Disney film')]",
        )
        row.find_element(By.XPATH, ".//*[starts-with(text(), 'tr-')]").click()
        text = shows(browser, "Spans", "generation 1", "search 1", "generation 2", "sub-query: The Apple Dumpling Gang")
        assert text.count("sub-query: ") == 2
