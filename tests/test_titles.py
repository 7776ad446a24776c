"""One rule for the titles of pages: what stands in a question file is found in a corpus, however each was written."""

from __future__ import annotations

import gzip
import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallelsearch.config import Bm25Config, PassageLayout, QuestionLayout
from parallelsearch.corpus.gold_paragraphs import gold_paragraphs
from parallelsearch.corpus.passages import Corpus, build_corpus
from parallelsearch.corpus.raw_file import RawFile
from parallelsearch.corpus.sources import SOURCES
from parallelsearch.errors import DataError
from parallelsearch.questions.reader import read_file
from parallelsearch.retrieval.bm25_retriever import Bm25Retriever
from parallelsearch.retrieval.indexes.bm25 import StoredBm25, write_bm25
from parallelsearch.retrieval.recall import question_recalls
from parallelsearch.rewards.semantics.stepsearch import passage_text
from parallelsearch.titles import page_title


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("Abel &amp; Sons", "Abel & Sons"),
        ("Abel &amp;amp; Sons", "Abel & Sons"),  # escaped twice
        ("&quot;Heroes&quot; &#40;album&#x29;", '"Heroes" (album)'),
        ("Lac\u00a0Olm", "Lac Olm"),
        ("Lac&nbsp;Olm ", "Lac Olm"),
        ("Lac\u3000 \u2009Olm", "Lac Olm"),
        ("Mu\u0308nchen", "M\u00fcnchen"),
        ("\u200eOlm\u200f\ufeff", "Olm"),
        ('"Ron ""Amen-Ra"" Lawrence"', 'Ron "Amen-Ra" Lawrence'),
        ('"Fix You"', '"Fix You"'),
        ("AT&T", "AT&T"),
        ("snake_case", "snake_case"),
        ("&nbsp;", ""),
    ],
)
def test_a_title_is_written_as_mediawiki_writes_it(written: str, title: str) -> None:
    assert page_title(written) == title


@given(st.text(alphabet="aé\u0301&;#38amp \u00a0\u200e"))
def test_a_title_that_is_right_stays_as_it_is(text: str) -> None:
    title = page_title(text)
    assert page_title(title) == title == unicodedata.normalize("NFC", title)


WRITTEN = ["Lac\u00a0Olm & So\u0308hne", "Lac Olm &amp; S\u00f6hne", "Lac&nbsp;Olm &#38; S\u00f6hne\u200e"]


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("source", ["geoworld", "dpr", "wiki18", "flashrag", "qa_contexts", "own", "mediawiki"])
def test_every_source_of_a_corpus_writes_it_so(tmp_path: Path, source: str, written: str) -> None:
    text, file = "A text.", tmp_path / "raw"
    row: dict = {"title": written, "text": text}
    if source in ("wiki18", "flashrag"):
        row = {"contents": f'"{written}"\n{text}'}
    elif source == "qa_contexts":
        row = {"question": "?", "context": [[written, [text]]]}
    file.write_text(json.dumps(row), encoding="utf-8")
    if source == "mediawiki":
        title = written.replace("&nbsp;", "\u00a0").replace("&#38;", "&").replace("& ", "&amp; ")
        page = f"<page><title>{title}</title><revision><text>{text}</text></revision></page>"
        file.write_text(f"<mediawiki>{page}</mediawiki>", encoding="utf-8")
    assert list(SOURCES[source](RawFile(file))) == [("Lac Olm & S\u00f6hne", text)]


def test_every_supporting_title_of_the_official_questions_is_in_the_corpus_of_their_contexts(
    shared_data: Path,
) -> None:
    """Two of these questions have a title with '&amp;' in the file."""
    file = shared_data / "raw" / "hotpotqa_official_100.json.gz"
    rows = json.loads(gzip.decompress(file.read_bytes()))
    assert sum(any("&amp;" in title for title, _ in row["supporting_facts"]) for row in rows) == 2
    titles = {title for title, _ in SOURCES["qa_contexts"](RawFile(file))}
    questions = read_file("hotpotqa", file, split="dev").questions
    assert [q.qid for q in questions if not titles.issuperset(q.supporting_titles)] == []


def test_texts_of_contexts_are_unescaped_as_questions_and_answers_are(shared_data: Path) -> None:
    file = shared_data / "field2" / "escaped_title.json"
    (question,) = read_file("hotpotqa", file).questions
    passages = list(SOURCES["qa_contexts"](RawFile(file)))
    assert question.supporting_titles == ("Abel & Sons", "Zeta Works")
    assert passages[0] == ("Abel & Sons", "Abel & Sons is a brewery founded in 1921. It stands in Holm.")


def test_recall_and_gold_paragraphs_find_pages_whose_titles_were_written_differently(
    shared_data: Path, tmp_path: Path
) -> None:
    folder = shared_data / "field2"
    build_corpus("own", folder / "nbsp_title_texts.jsonl", tmp_path / "corpus", layout=PassageLayout())
    write_bm25(tmp_path / "corpus", tmp_path / "bm25", Bm25Config())
    questions = read_file("own", folder / "nbsp_title_questions.jsonl", layout=QuestionLayout()).questions
    (recall,) = question_recalls(Bm25Retriever(StoredBm25(tmp_path / "bm25")), questions)
    assert (recall.in_corpus, recall.at) == (1.0, {3: 1.0, 5: 1.0, 10: 1.0})
    gold = gold_paragraphs(questions, Corpus(tmp_path / "corpus"), passage_text)
    assert gold == [("Lac Olm\nLac Olm is a lake.",)]


def test_a_title_of_which_nothing_is_left_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "raw.jsonl"
    file.write_text('{"title": "&nbsp;", "text": "x"}')
    with pytest.raises(DataError, match=r"line 1: 'title' is empty"):
        list(SOURCES["own"](RawFile(file)))
