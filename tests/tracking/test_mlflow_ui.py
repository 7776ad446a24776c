"""The collected store in MLflow's own web page: the arms in the list of runs, and a trace with its spans."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import real_study
from browser import chromium
from mlflow_server import PATIENCE, mlflow_server
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from parallelsearch.plan.paths import Results
from parallelsearch.tracking.collect import collect
from parallelsearch.tracking.store import Store

pytestmark = pytest.mark.slow


@pytest.fixture
def server(results: Results, store: Store, tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Address of a server over the collected store, and the run of each arm."""
    summary = collect(results.root, real_study.TRACKING)
    with mlflow_server(store.uri, results.mlflow() / "artifacts", tmp_path) as started:
        address = f"{started.address}/#/experiments/{store.experiment_id}"
        yield address, {run["arm"]: run["run_id"] for run in summary["runs"]}


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

        browser.get(f"{experiment}/runs/{runs['parallelsearch']}/artifacts/run/config.yaml")
        shows(browser, "metrics.jsonl", "lambda_d: 0.15")
