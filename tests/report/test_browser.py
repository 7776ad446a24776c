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
from selenium.webdriver.support.ui import Select, WebDriverWait

from parallelsearch.evaluation.episodes import read_episodes
from parallelsearch.evaluation.metrics import load
from parallelsearch.files import write_text
from parallelsearch.report.figures import FIGURES
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
    drawn = [name for name in FIGURES if name not in ("gain", "top_k", "accuracy_by_budget")]
    assert [image.get_attribute("id") for image in images] == [f"figure-{name}" for name in ["gain", *drawn]]
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


def choose(browser: Chrome, **values: str) -> None:
    for name, value in values.items():
        Select(browser.find_element(By.NAME, name)).select_by_visible_text(value)


def count(browser: Chrome) -> str:
    return browser.find_element(By.ID, "shown").text


@pytest.fixture
def fresh(desk: Chrome, address: str) -> Chrome:
    desk.get(address)
    WebDriverWait(desk, 20).until(lambda browser: count(browser).endswith("episodes"))
    return desk


def test_the_filters_show_only_what_was_chosen(fresh: Chrome, study_files: real_study.RealStudy) -> None:
    episodes = load(study_files.episodes)
    assert count(fresh) == "470 of 470 episodes"
    assert len(visible_episodes(fresh)) == 100
    choose(fresh, arm="warm-start", structure="parallel", seed="1", decomposed="no")
    wanted = episodes.query("arm == 'warm-start' and structure == 'parallel' and seed == 1 and not decomposed")
    assert count(fresh) == f"{len(wanted)} of 470 episodes"
    shown = visible_episodes(fresh)
    assert len(shown) == len(wanted) > 0
    assert all(entry.text.startswith("warm-start parallel") for entry in shown)
    choose(fresh, arm="all", structure="all", seed="all", decomposed="all", verdict="failed")
    assert count(fresh) == "2 of 470 episodes"
    choose(fresh, verdict="all")
    fresh.find_element(By.NAME, "words").send_keys("ZZZ no question says this")
    assert count(fresh) == "0 of 470 episodes"


def test_the_list_goes_on_by_a_button(fresh: Chrome) -> None:
    more = fresh.find_element(By.ID, "more")
    assert more.text == "List 100 more of 370"
    more.send_keys(Keys.ENTER)
    assert len(visible_episodes(fresh)) == 200
    assert fresh.switch_to.active_element == visible_episodes(fresh)[100].find_element(By.TAG_NAME, "summary")
    choose(fresh, verdict="failed")
    assert not more.is_displayed()


def test_an_episode_opens_by_keyboard_with_all_its_turns(fresh: Chrome, study_files: real_study.RealStudy) -> None:
    episode = visible_episodes(fresh)[0]
    episode.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    assert episode.get_attribute("open")
    turns = WebDriverWait(fresh, 20).until(lambda _: episode.find_elements(By.CSS_SELECTOR, ".turn"))
    stored = next(iter(read_episodes(study_files.episodes[0])))[0]
    assert " ".join(stored.question.text.split()) in episode.text
    assert len(turns) == len(stored.turns) and turns[0].is_displayed()
    turns[0].find_element(By.CSS_SELECTOR, ".text summary").click()
    wrote, shown = turns[0].find_elements(By.TAG_NAME, "pre")
    assert wrote.text == stored.turns[0].text
    assert shown.text.splitlines()[0] == stored.turns[0].observation.strip().splitlines()[0]


def test_two_arms_stand_side_by_side_on_the_same_question(fresh: Chrome) -> None:
    choose(fresh, arm="search-r1", structure="parallel", seed="0", beside="parallelsearch")
    episode = visible_episodes(fresh)[0]
    episode.find_element(By.TAG_NAME, "summary").click()
    left, right = episode.find_elements(By.CSS_SELECTOR, ".side")
    assert left.text.startswith("search-r1, seed 0") and right.text.startswith("parallelsearch, seed 0")
    assert left.rect["y"] == right.rect["y"] and left.rect["x"] < right.rect["x"]
    queries = [{query.text for query in side.find_elements(By.CSS_SELECTOR, ".query")} for side in (left, right)]
    assert queries[0] == queries[1]  # the same look-ups in both
    choose(fresh, beside="no-decomposition-reward")  # an open episode follows the choice
    assert episode.find_elements(By.CSS_SELECTOR, ".side")[1].text.startswith("no-decomposition-reward, seed 0")
    choose(fresh, beside="none")
    assert episode.find_elements(By.CSS_SELECTOR, ".side") == []
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
