"""The report in a real browser: what a reader sees, clicks and hears, at desk and phone width."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import real_study
from browser import chromium
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from parallelsearch.files import write_text
from parallelsearch.report.page import render
from parallelsearch.report.study import read_study

SETTINGS = json.dumps({"arms": list(real_study.ARMS), "baseline": "search-r1"})


@pytest.fixture(scope="module")
def address(study_files: real_study.RealStudy, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "index.html"
    write_text(path, render(read_study(study_files.inputs, SETTINGS)))
    return path.as_uri()


@pytest.fixture(scope="module")
def desk(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        browser.get(address)
        yield browser


def visible_episodes(browser: Chrome) -> list:
    return [entry for entry in browser.find_elements(By.CSS_SELECTOR, ".episode") if entry.is_displayed()]


def test_the_console_is_silent(desk: Chrome) -> None:
    assert [entry for entry in desk.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_the_main_table_is_seen_with_its_figures(desk: Chrome) -> None:
    table = desk.find_element(By.CSS_SELECTOR, "#table-hotpotqa_by_structure + .scroll table")
    assert table.is_displayed()
    header = [cell.text for cell in table.find_elements(By.CSS_SELECTOR, "thead th")]
    assert header[:5] == ["arm", "seed", "structure", "n", "em"]
    rows = table.find_elements(By.CSS_SELECTOR, "tbody tr")
    assert len(rows) == 20
    assert rows[0].text.split()[:4] == ["warm-start", "0", "parallel", "17"]


def test_every_figure_is_drawn(desk: Chrome) -> None:
    images = desk.find_elements(By.CSS_SELECTOR, "figure img")
    assert [image.get_attribute("id") for image in images] == [
        "figure-training_curves",
        "figure-by_structure",
        "figure-ablation_grid",
    ]
    for image in images:
        assert image.is_displayed()
        assert desk.execute_script("return arguments[0].complete && arguments[0].naturalWidth", image) > 500
        assert image.size["width"] > 500


def test_the_two_ways_stand_side_by_side(desk: Chrome) -> None:
    left, right = desk.find_elements(By.CSS_SELECTOR, "#contrast .side")
    assert left.rect["y"] == right.rect["y"]
    assert left.rect["x"] + left.rect["width"] <= right.rect["x"]
    assert len(left.find_elements(By.CSS_SELECTOR, ".turn")) == 3
    assert len(right.find_elements(By.CSS_SELECTOR, ".turn")) == 2
    queries = [query.text for query in right.find_elements(By.CSS_SELECTOR, ".query")]
    assert len(queries) == 2
    assert [query.text for query in left.find_elements(By.CSS_SELECTOR, ".query")] == queries
    assert all(hit.text in queries for hit in right.find_elements(By.CSS_SELECTOR, ".hit"))
    assert "s generation" in right.text
    assert "right" in right.text


def test_the_filter_shows_only_what_was_chosen(desk: Chrome) -> None:
    everything = len(visible_episodes(desk))
    Select(desk.find_element(By.NAME, "arm")).select_by_visible_text("parallelsearch")
    Select(desk.find_element(By.NAME, "structure")).select_by_visible_text("parallel")
    shown = visible_episodes(desk)
    assert everything == 80
    assert len(shown) == 8
    assert all(entry.text.startswith("parallelsearch") for entry in shown)
    assert desk.find_element(By.ID, "shown").text == "8 of 80 episodes"
    for name in ("arm", "structure"):
        Select(desk.find_element(By.NAME, name)).select_by_visible_text("all")
    assert len(visible_episodes(desk)) == everything


def test_an_episode_opens_by_keyboard(desk: Chrome) -> None:
    episode = visible_episodes(desk)[0]
    episode.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    assert episode.get_attribute("open")
    assert episode.find_element(By.CSS_SELECTOR, ".turn").is_displayed()


def test_the_first_tab_stop_skips_to_the_results(desk: Chrome, address: str) -> None:
    desk.get(address)
    ActionChains(desk).send_keys(Keys.TAB).perform()
    assert desk.switch_to.active_element.text == "Skip to the results"
    ActionChains(desk).send_keys(Keys.ENTER).perform()
    assert desk.current_url.endswith("#results")


def test_a_phone_needs_no_sideways_scrolling(address: str, tmp_path: Path) -> None:
    with chromium(tmp_path / "profile") as browser:
        size = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(address)
        assert browser.execute_script("return innerWidth") == 360
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
        left, right = browser.find_elements(By.CSS_SELECTOR, "#contrast .side")
        assert right.rect["y"] >= left.rect["y"] + left.rect["height"]
        region = browser.find_element(By.CSS_SELECTOR, "#table-hotpotqa_by_structure + .scroll")
        assert browser.execute_script("return arguments[0].scrollWidth > arguments[0].clientWidth", region)
