"""A corpus of one's own: fields and passages as its layout says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parallelsearch.config import PassageLayout
from parallelsearch.corpus.passages import Corpus, build_corpus
from parallelsearch.errors import ConfigError, DataError
from parallelsearch.plan.planning import StudyPlan

TEXTS = [
    {"name": "Oslo", "body": "Oslo is\n the capital  of Norway."},
    {"name": " Lima ", "body": " ".join(f"word{n}" for n in range(7))},
]
LAYOUT = PassageLayout(title="name", text="body", words=3)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in TEXTS))
    return path


def built(file: Path, layout: PassageLayout | None) -> list[tuple[str, str]]:
    manifest = build_corpus("own", file, file.parent / "corpus", layout=layout)
    corpus = Corpus(file.parent / "corpus")
    assert manifest["records_read"] == manifest["records_used"] == len(TEXTS)
    return [(corpus[number].title, corpus[number].text) for number in range(len(corpus))]


def test_texts_are_cut_into_passages_of_so_many_words(texts: Path) -> None:
    assert built(texts, LAYOUT) == [
        ("Oslo", "Oslo is the"),
        ("Oslo", "capital of Norway."),
        ("Lima", "word0 word1 word2"),
        ("Lima", "word3 word4 word5"),
        ("Lima", "word6"),
    ]


def test_or_stay_whole(texts: Path) -> None:
    whole = LAYOUT.model_copy(update={"words": None})
    assert built(texts, whole) == [("Oslo", "Oslo is the capital of Norway."), ("Lima", TEXTS[1]["body"])]


def test_an_array_and_the_plain_layout_of_100_words(tmp_path: Path) -> None:
    path = tmp_path / "texts.json"
    path.write_text(json.dumps([{"title": "a", "text": "x " * 101}, {"title": "b", "text": "y"}]))
    assert [(title, len(text.split())) for title, text in built(path, None)] == [("a", 100), ("a", 1), ("b", 1)]


def test_a_row_without_a_declared_field_is_refused_and_leaves_no_manifest(texts: Path) -> None:
    with pytest.raises(DataError, match=r"texts.jsonl, line 1: no field 'title' \(found: name, body\)"):
        build_corpus("own", texts, texts.parent / "corpus")
    assert not (texts.parent / "corpus" / "manifest.json").exists()


def test_a_layout_of_a_known_source_is_refused(texts: Path) -> None:
    with pytest.raises(ConfigError, match="a layout is for the source 'own', but the source is 'geoworld'"):
        build_corpus("geoworld", texts, texts.parent / "corpus", layout=LAYOUT)


def test_the_workflow_hands_the_layout_to_the_source_of_ones_own_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from parallelsearch.config_files import load_study, merge, validate_study

    monkeypatch.chdir(Path(__file__).resolve().parents[2])
    values = merge(
        load_study().model_dump(),
        {
            "corpora": {
                "mine": {"source": "own", "file": {"path": "README.md", "sha256": "a" * 64}, "layout": {"text": "body"}}
            }
        },
    )
    plan = StudyPlan(validate_study(values))
    assert plan.corpus_source("geoworld") == "geoworld"
    source, checksum, known, option, layout = plan.corpus_source("mine")
    assert (source, checksum, known, option) == ("own", "--sha256", "a" * 64, "--layout")
    assert PassageLayout.model_validate_json(layout) == PassageLayout(text="body")
