"""Hostile texts in tables, figures and the report: read by LaTeX, a Markdown and a CSV reader, and a real browser."""

from __future__ import annotations

import csv
import random
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
import real_study
from browser import chromium
from hostile import COMMANDS, EVERY_TEXT, OWNED, SCRIPT, TAGS, TEXTS
from markdown_it import MarkdownIt
from pylatexenc.latexwalker import LatexWalker
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from parallelsearch.evaluation.episodes import Provenance, write_episodes
from parallelsearch.files import write_text
from parallelsearch.records import Structure
from parallelsearch.report import figures, tables
from parallelsearch.report.drawing import write_drawing
from parallelsearch.report.page import render
from parallelsearch.report.study import Study, read_study
from parallelsearch.report.table import Table, escaped, write_table
from parallelsearch.visible import visible

TEXT = {**TEXTS, **{f"command, {name}": text for name, text in COMMANDS.items()}, "tags": TAGS}
HARMLESS_MACROS = {  # what `escaped` and the frame of a table are made of
    *("textbackslash", "&", "%", "$", "#", "_", "{", "}", "textasciitilde", "textasciicircum", "textless"),
    *("textgreater", "\\", "centering", "footnotesize", "setlength", "tabcolsep", "caption", "label", "toprule"),
    *("midrule", "bottomrule", "par", "smallskip", "parbox", "linewidth", "scriptsize", "begin", "end"),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One table whose every text is hostile, in its three notations; each cell's row is named by a number."""
    frame = pd.DataFrame({"text": list(TEXT.values()), "number": [-float(place) for place in range(len(TEXT))]})
    table = Table("hostile", EVERY_TEXT, frame, [EVERY_TEXT, TAGS], headers={"number": EVERY_TEXT})
    paths = write_table(table, tmp_path_factory.mktemp("tables") / "hostile")
    return {path.suffix[1:]: path for path in paths}


def test_no_cell_of_a_csv_begins_as_a_formula_does_and_numbers_stay_numbers(written: dict[str, Path]) -> None:
    with written["csv"].open(newline="") as stream:
        header, *rows = csv.reader(stream)
    assert header == ["text", "number"] and len(rows) == len(TEXT)
    for (shown, number), (place, text) in zip(rows, enumerate(TEXT.values()), strict=True):
        assert shown.lstrip("'") == visible(text).lstrip("'")
        assert not shown.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
        assert float(number) == -place
    assert rows[list(TEXT).index("formula")][0].startswith("'=HYPERLINK")


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_markdown_makes_one_table_of_it_without_links_code_and_html(written: dict[str, Path]) -> None:
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(written["md"].read_text())
    tags = Tags(page)
    assert tags.found <= {"p", "strong", "em", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"}
    assert tags.attributes <= {"style"}  # alignment
    rows = re.findall(r"<tr>(.*?)</tr>", page, flags=re.DOTALL)
    assert len(rows) == 1 + len(TEXT) and all(len(re.findall("<t[hd]", row)) == 2 for row in rows)


def test_latex_reads_no_macro_but_the_tables_own(written: dict[str, Path]) -> None:
    """By an independent parser of LaTeX; `test_latex_itself` runs the real one."""
    needs, _, source = written["tex"].read_text().partition("\n")
    assert needs == r"% needs \usepackage{booktabs}"
    assert set(re.findall(r"\\([A-Za-z]+|.)", source)) <= HARMLESS_MACROS
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", source)
    nodes, _, _ = LatexWalker(source, tolerant_parsing=False).get_latex_nodes()
    environments = [node for node in nodes if node.isNodeType(type(nodes[-2])) and "begin" in node.latex_verbatim()[:8]]
    assert len(environments) == 1
    for text in TEXT.values():
        assert escaped(text) in source


@pytest.mark.slow
def test_latex_itself_typesets_it_and_runs_nothing(written: dict[str, Path], tmp_path: Path) -> None:
    if not shutil.which("pdflatex"):
        pytest.skip("needs the Debian package texlive-latex-base")
    plain = re.sub(r"[^\x09\x0a\x20-\x7e]", "?", written["tex"].read_text())  # letters that its fonts lack
    rules = r"\newcommand\toprule{\hline}\newcommand\midrule{\hline}\newcommand\bottomrule{\hline}"  # booktabs' own
    control = r"\immediate\write18{touch CONTROL}"  # what this run of LaTeX would do for an author
    (tmp_path / "page.tex").write_text(
        r"\documentclass{article}" + rules + control + r"\begin{document}" + plain + r"\end{document}"
    )
    command = ["pdflatex", "-shell-escape", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "CONTROL").exists()
    assert not (tmp_path / OWNED).exists() and "etc/passwd" not in done.stdout


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> Study:
    """Two arms over one question, every text of their episodes, settings and provenance hostile."""
    folder, draw, hostile = tmp_path_factory.mktemp("hostile"), random.Random(0), f"{EVERY_TEXT} {TAGS}"
    question, passages = next(
        pair for pair in real_study.read_hotpotqa(shared_data) if pair[0].structure is Structure.PARALLEL
    )
    question = replace(question, text=hostile, golden_answers=(EVERY_TEXT,), type=hostile)
    passages = [replace(passage, title=f"{passage.title} {EVERY_TEXT}", text=hostile) for passage in passages]
    origin = Provenance(*("1", "2", "3", "4"), top_k=2, decoding={"model": hostile}, corpus=hostile, index=hostile)
    files = []
    for arm, parallel in (("search-r1", False), (f"a$x_1$ {SCRIPT}", True)):
        episode = real_study.answered(question, passages, parallel, True, draw)
        turns = tuple(replace(turn, text=f"{turn.text}{hostile}") for turn in episode.turns)
        path = folder / "eval" / f"arm{len(files)}" / "seed0" / "hotpotqa.dev" / "episodes.parquet"
        episode = replace(episode, turns=turns, error=hostile)
        write_episodes(path, [(episode, None)], arm=arm, seed=0, provenance=origin)
        files.append(path)
    return read_study(files, "{}")


def test_tables_and_figures_of_a_hostile_study_are_made(study: Study, tmp_path: Path) -> None:
    for name in ("hotpotqa_by_structure", "hotpotqa_details"):
        for path in write_table(tables.build(name, study, Path("config/published")), tmp_path / name):
            text = path.read_text()
            assert "\x1b" not in text and "\x00" not in text and "\u202e" not in text
            if path.suffix == ".md":
                assert "<script" not in text and "<img" not in text
    for name in ("by_structure", "pareto"):
        for path in write_drawing(figures.build(name, study), tmp_path / name):
            assert path.stat().st_size > 0


@pytest.mark.slow
def test_a_browser_shows_hostile_texts_and_does_nothing_else(study: Study, tmp_path: Path) -> None:
    path = tmp_path / "index.html"
    write_text(path, render(study))
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", path.read_text())
    with chromium(tmp_path / "profile") as browser:
        browser.get(path.as_uri())
        shown = browser.find_element(By.ID, "shown")
        WebDriverWait(browser, 20).until(lambda _: shown.text.endswith("episodes"))
        assert shown.text == "2 of 2 episodes"
        assert (
            len(browser.find_elements(By.CSS_SELECTOR, "#contrast .side .turn")) == 5
        )  # the question answered both ways
        for entry in browser.find_elements(By.CSS_SELECTOR, ".episode"):
            entry.find_element(By.TAG_NAME, "summary").click()
        for summary in browser.find_elements(By.CSS_SELECTOR, ".text summary"):
            browser.execute_script("arguments[0].click()", summary)
        assert browser.title == "Parallel search: report of a study"
        assert browser.find_elements(By.CSS_SELECTOR, "iframe, object, embed, link, base, form[action]") == []
        assert len(browser.find_elements(By.TAG_NAME, "script")) == 2
        assert browser.find_elements(By.CSS_SELECTOR, "[onerror], [onmouseover], [href^=javascript]") == []
        page = browser.execute_script("return document.body.textContent")
        for name, text in TEXTS.items():
            assert " ".join(visible(text).split()) in " ".join(page.split()), name
        assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
        # Even where a text came to be markup, the page's policy would let none of it run or load.
        browser.execute_script(
            "document.getElementById('results').insertAdjacentHTML('beforeend', arguments[0])", SCRIPT
        )
        browser.execute_script(
            "const s = document.createElement('script'); s.textContent = 'document.title = \"owned\"';"
            " document.body.append(s)"
        )
        said = [entry["message"] for entry in browser.get_log("browser")]
        assert browser.title == "Parallel search: report of a study"
        assert sum("Content Security Policy" in message for message in said) >= 2
