"""Gold paragraphs of questions, by id and by title, out of a real corpus folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parallelsearch.corpus.gold_paragraphs import gold_paragraphs
from parallelsearch.corpus.passages import Corpus, build_corpus
from parallelsearch.records import Question, Structure
from parallelsearch.rewards.semantics.stepsearch import passage_text


def question(titles: tuple[str, ...] = (), ids: tuple[int, ...] = ()) -> Question:
    return Question("q", "d", "train", "Who?", ("A",), "", Structure.SEQUENTIAL, 2, titles, ids)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    pages = [("Oslo", "first"), ("Lima", "only"), ("Oslo", "second"), ("oslo", "another page")]
    rows = [{"id": str(number), "contents": f'"{title}"\n{text}'} for number, (title, text) in enumerate(pages)]
    (tmp_path / "pages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    build_corpus("wiki18", tmp_path / "pages.jsonl", tmp_path / "corpus")
    return Corpus(tmp_path / "corpus")


def test_the_first_passage_of_a_page_stands_for_its_paragraph(corpus: Corpus) -> None:
    asked = [question(("Lima", "Oslo", "Oslo", "Rome")), question(), question(("Rome",))]
    assert gold_paragraphs(asked, corpus, passage_text) == [("Lima\nonly", "Oslo\nfirst"), (), ()]


def test_ids_go_before_titles(corpus: Corpus) -> None:
    assert gold_paragraphs([question(("Lima",), (2, 3, 2))], corpus, passage_text) == [
        ("Oslo\nsecond", "oslo\nanother page")
    ]


def test_passages_of_titles_keep_their_order(corpus: Corpus) -> None:
    assert [passage.id for passage in corpus.titled(["Oslo", "Lima"])] == [0, 1, 2]
    assert list(corpus.titled(["Rome"])) == []
