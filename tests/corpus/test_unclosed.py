"""Pages that a parser would not finish in sensible time are known beforehand, left out, counted and named."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from dumps import dump, page
from typer.testing import CliRunner

from parallelsearch.cli import app
from parallelsearch.corpus.passages import Corpus, build_corpus
from parallelsearch.corpus.raw_file import RawFile
from parallelsearch.corpus.wiki_dump.pages import DumpReader
from parallelsearch.corpus.wiki_dump.plain_text import plain_text
from parallelsearch.corpus.wiki_dump.unclosed import MOST_WORK, TooMuchUnclosed, unclosed_work

# Each of these took mwparserfromhell between 1 and 40 s at 32 kB.
SLOW = ["{{a|", "{{{a|", "[[a|", "\n{|\n|", "<div ", "<b>", "<ref name=a>", "<a b='", "{{a|[[b|", "\n* {{a|", "<br "]
SLOW += ["{{a|b={{", "{{a|{{b}}", "{{a|<b>}}", "[[a|<b>]]", "{{{a|b}}", '<ref name="/>', "<ref>\n==</ref>", "}}\n{|"]


@pytest.mark.parametrize("mark", SLOW)
def test_a_page_of_marks_that_are_never_closed_is_given_up_at_once(mark: str) -> None:
    start = time.process_time()
    with pytest.raises(TooMuchUnclosed):
        plain_text("Text. " + mark * (32_000 // len(mark)), frozenset())
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    ("markup", "work"),
    [
        ("{{a|{{b}}}} [[c|d]] {{{e|f}}} {{{{{g}}}}} [http://h i] <b>j</b> <br> <ref name='k'/> <hr />", 0),
        ("== a ==\n{|\n|-\n| b || [1]\n|}\n<li>c <td>d", 0),
        ("ab{{cd", 4),  # from the mark to the end
        ("{{a[[b}}c", 6),  # the template is closed, the link is not
        ("[[a{{b]]c", 6),
        ("<b><i></b>ab", 9),
        ("{{a", 3),
        ("{{{a}}", 6),
        ("}} ]] </b> |}", 0),
    ],
)
def test_the_way_of_unclosed_marks_to_the_end_is_counted(markup: str, work: int) -> None:
    assert unclosed_work(markup) == work


def test_no_real_page_comes_near_the_limit(shared_data: Path) -> None:
    file = shared_data / "wiki_dumps" / "dbpedia-minidump-en.xml.bz2"
    assert max(unclosed_work(article.markup) for article in DumpReader(RawFile(file)).articles()) < MOST_WORK / 20


def test_it_is_counted_and_named_and_the_pages_around_it_are_kept(tmp_path: Path) -> None:
    texts = {"Before": "Before is a village.", "Slow &amp; long": "Text. " + "{{a|" * 8000, "After": "After is a town."}
    (tmp_path / "d.xml").write_text(dump(*(page(title, text) for title, text in texts.items())))
    run = CliRunner().invoke(app, ["corpus", "build", "mediawiki", str(tmp_path / "d.xml"), str(tmp_path / "c")])
    assert run.exit_code == 0, run.output
    assert "3 records read; left out: 1 too much unclosed markup" in run.output
    assert "not read, too much unclosed markup: 'Slow & long'" in run.output
    corpus = Corpus(tmp_path / "c")
    assert [passage.title for rows in corpus.rows(0, 9) for passage in rows] == ["Before", "After"]
    assert corpus.manifest["titles_unread"] == {"too much unclosed markup": ["Slow & long"]}


def test_users_dumps(shared_data: Path, tmp_path: Path) -> None:
    build_corpus("mediawiki", shared_data / "field2" / "nowiki_dump.xml", tmp_path / "nowiki")
    texts = {p.title: p.text for rows in Corpus(tmp_path / "nowiki").rows(0, 9) for p in rows}
    assert texts["Olm"] == "Type [[Olm]] to link and {{stub}} to mark a page."
    assert texts["Ryle"] == "Medeltemperaturen är 18 °C i juli."
    assert texts["Sup"] == "The layer has 100^2=10000 nodes."
    manifest = build_corpus("mediawiki", shared_data / "field2" / "slow_page.xml.gz", tmp_path / "slow")
    assert manifest["titles_unread"] == {"too much unclosed markup": ["Empty"]}
    assert manifest["records_dropped"]["too much unclosed markup"] == 1
