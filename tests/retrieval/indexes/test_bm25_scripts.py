"""BM25 beyond English: words of every script find the passages that have them, and a rule that cuts wrongly is seen."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

import bm25s
import pytest

from parallelsearch.config import Bm25Config
from parallelsearch.corpus.passages import build_corpus
from parallelsearch.errors import DataError, MismatchError
from parallelsearch.files import MANIFEST
from parallelsearch.retrieval.indexes import bm25
from parallelsearch.retrieval.indexes.bm25 import StoredBm25, write_bm25
from parallelsearch.retrieval.indexes.bm25_words import Words

PASSAGES = [
    ("北京", "北京是中华人民共和国的首都，也是全国的政治中心。"),
    ("กรุงเทพมหานคร", "กรุงเทพมหานครเป็นเมืองหลวงและนครที่มีประชากรมากที่สุดของประเทศไทย"),
    ("दिल्ली", "दिल्ली भारत की राजधानी है और कवि ग़ालिब का शहर भी है।"),
    ("서울", "서울은 대한민국의 수도이며 한강이 도시를 가로지른다."),
    ("東京", "東京は日本の首都で、スーパーコンピュータの研究所がある。"),
    ("القاهرة", "القاهِرَة هي عاصِمة مِصر وأكبر مُدنها."),
    ("München", "München ist die Hauptstadt von Bayern, die Straße heißt Leopoldstraße."),
    ("İstanbul", "İstanbul is a city on the Bosphorus."),
    ("ភ្នំពេញ", "ភ្នំពេញជារាជធានីនៃប្រទេសកម្ពុជា"),
]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> StoredBm25:
    return built(tmp_path_factory.mktemp("scripts"), PASSAGES)


def built(folder: Path, passages: Sequence[tuple[str, str]]) -> StoredBm25:
    rows = [{"title": title, "text": text} for title, text in passages]
    (folder / "raw.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    build_corpus("geoworld", folder / "raw.jsonl", folder / "corpus")
    write_bm25(folder / "corpus", folder / "index", Bm25Config())
    return StoredBm25(folder / "index")


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize(
    ("query", "title"),
    [
        ("政治中心", "北京"),
        ("京", "北京"),  # a word of one character; 東京 has it too
        ("เมืองหลวง", "กรุงเทพมหานคร"),
        ("ประชากร", "กรุงเทพมหานคร"),
        ("राजधानी", "दिल्ली"),
        ("कवि", "दिल्ली"),  # no two letters without a mark between them
        ("수도", "서울"),  # the text has 수도이며
        ("한강", "서울"),
        ("研究所", "東京"),
        ("ｽｰﾊﾟｰ", "東京"),  # half-width
        ("عاصمة مصر", "القاهرة"),  # without vowel signs
        ("müNCHEN", "München"),
        ("STRASSE", "München"),
        ("istanbul", "İstanbul"),
        ("Ｂｏｓｐｈｏｒｕｓ", "İstanbul"),
        ("bospho\u00adrus", "İstanbul"),
        ("រាជធានី", "ភ្នំពេញ"),
    ],
)
def test_a_word_finds_its_passage(index: StoredBm25, query: str, title: str, form: str) -> None:
    ((_, ids),) = index.search([unicodedata.normalize(form, query)], 1)
    assert [index.corpus[int(row)].title for row in ids] == [title]


def test_an_accent_tells_words_apart_and_english_words_are_what_they_were() -> None:
    words = Words("none", "none")
    assert words(["Café cafe", "AT&T's x_1, C 3 km2"]) == [["café", "cafe"], ["at", "x_1", "km2"]]
    assert words(["李华5月生"]) == [["李", "华", "李华", "5", "月", "生", "月生"]]


def test_users_files_find_their_passages_and_no_other(shared_data: Path, tmp_path: Path) -> None:
    for name, wanted in [
        ("bm25_zh", {"国家科学奖": [0], "苏州": [1]}),
        ("bm25_nfd", {"München": [0], "Müller": [1], "Café": [1]}),
    ]:
        build_corpus("geoworld", shared_data / "field2" / f"{name}.jsonl", tmp_path / name)
        quality = write_bm25(tmp_path / name, tmp_path / f"{name}.index", Bm25Config())["quality"]
        assert quality == {"self_retrieval": 1.0, "word_retrieval": 1.0, "sample": 3, "words": 200}
        for query, rows in wanted.items():
            ((_, ids),) = StoredBm25(tmp_path / f"{name}.index").search([query], 3)
            assert ids.tolist()[: len(rows)] == rows
            assert name == "bm25_zh" or len(ids) == len(rows)


def runs_of_letters(texts: Sequence[str]) -> list[list[str]]:
    """scikit-learn's rule, which most BM25 libraries share: no marks, and a clause of Chinese is one word."""
    return bm25s.tokenize(list(texts), stopwords=None, return_ids=False, show_progress=False)


def as_written(texts: Sequence[str]) -> list[list[str]]:
    return [text.lower().split() for text in texts]


def whole_texts(texts: Sequence[str]) -> list[list[str]]:
    return [[text] for text in texts]


@pytest.mark.parametrize(
    ("rule", "passages"),
    [
        (runs_of_letters, PASSAGES[:1]),
        (runs_of_letters, PASSAGES[1:2]),
        (runs_of_letters, PASSAGES[2:3]),
        (runs_of_letters, PASSAGES[4:5]),
        (as_written, [("Café", "Málaga, Córdoba, Cádiz, Almería, Jaén")]),
        (whole_texts, [("Oslo", "Oslo is the capital of Norway.")]),
    ],
)
def test_the_gate_sees_a_rule_that_cuts_words_wrongly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: Callable, passages: list[tuple[str, str]]
) -> None:
    """With each of these rules every passage still finds itself."""
    monkeypatch.setattr(bm25, "Words", lambda stemmer, stopwords: rule)
    with pytest.raises(DataError, match=r"only 0\.\d+ of 200 words find a passage in the BM25 index of"):
        built(tmp_path, passages)


def test_an_index_whose_words_were_cut_by_an_older_rule_is_refused(tmp_path: Path) -> None:
    built(tmp_path, PASSAGES[:2])
    path = tmp_path / "index" / MANIFEST
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["words"] = {"pattern": r"(?u)\b\w\w+\b", "lower": True, "stopwords": "english", "stemmer": "english"}
    path.write_text(json.dumps(manifest))
    with pytest.raises(MismatchError, match=r"another rule of words .*; rerun `parallelsearch index bm25`"):
        StoredBm25(tmp_path / "index")
