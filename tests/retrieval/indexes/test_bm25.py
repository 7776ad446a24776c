"""BM25: its scores against the formula by hand, ties, self-retrieval, and parts that do not belong together."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from small_study import DUPLICATED, Study

from parallelsearch.config import Bm25Config
from parallelsearch.corpus.passages import build_corpus
from parallelsearch.errors import DataError, MismatchError
from parallelsearch.files import MANIFEST
from parallelsearch.retrieval.indexes.bm25 import FOLDER, StoredBm25, Words, write_bm25

# Words of each passage after lower case, stopwords ("the", "is", "of", "and", "on") and Snowball's English stemmer.
TINY = [
    ("Oslo", "Oslo is the capital of Norway.", ["oslo", "oslo", "capit", "norway"]),
    ("Bergen", "Bergen lies on the coast of Norway, and Norway is long.", "bergen bergen lie coast norway norway long"),
    ("Lima", "Lima is the capital of Peru.", ["lima", "lima", "capit", "peru"]),
    ("Rivers", "Rivers, rivers: running rivers.", ["river"] * 3 + ["run", "river"]),
]
COUNTED = [words.split() if isinstance(words, str) else words for _, _, words in TINY]


def lucene_score(query: list[str], number: int, k1: float, b: float) -> float:
    """The formula as Kamphuis et al. (ECIR 2020) print Lucene's variant, over the words counted above."""
    words, mean = COUNTED[number], sum(map(len, COUNTED)) / len(COUNTED)
    total = 0.0
    for word in query:
        df, tf = sum(word in other for other in COUNTED), words.count(word)
        idf = math.log(1 + (len(COUNTED) - df + 0.5) / (df + 0.5))
        total += idf * tf / (tf + k1 * (1 - b + b * len(words) / mean))
    return total


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    rows = [{"id": n, "title": title, "text": text} for n, (title, text, _) in enumerate(TINY)]
    (folder / "raw.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    build_corpus("geoworld", folder / "raw.jsonl", folder / "corpus")
    write_bm25(folder / "corpus", folder / "index", Bm25Config())
    return folder


@pytest.fixture
def own_tiny(tiny: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny, tmp_path / "moved"))


def test_words_are_lower_case_stemmed_and_without_stopwords() -> None:
    assert Words("english", "english")([f"{title}\n{text}" for title, text, _ in TINY]) == COUNTED
    assert Words("none", "none")(["The Rivers of X"]) == [["the", "rivers", "of"]]


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.5, 0.75), (1.2, 0.0)])
def test_scores_are_lucenes(tiny: Path, tmp_path: Path, k1: float, b: float) -> None:
    write_bm25(tiny / "corpus", tmp_path, Bm25Config(k1=k1, b=b))
    query = ["norway", "capit", "river", "norway"]  # a word that stands twice in the query counts twice
    ((scores, ids),) = StoredBm25(tmp_path).search(["Norway's capitals, the river, Norwegian Norway"], 9)
    expected = {number: lucene_score(query, number, k1, b) for number in range(4)}
    assert sorted(ids.tolist()) == [0, 1, 2, 3]
    assert [expected[number] for number in ids] == sorted(expected.values(), reverse=True)
    assert scores == pytest.approx([expected[number] for number in ids], rel=1e-6)


def test_equal_scores_come_in_the_order_of_their_ids_however_many_are_asked_for(tmp_path: Path) -> None:
    rows = [{"title": f"T{n}", "text": "same words here" + " other" * (n % 2)} for n in range(300)]
    (tmp_path / "raw.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    build_corpus("geoworld", tmp_path / "raw.jsonl", tmp_path / "corpus")
    write_bm25(tmp_path / "corpus", tmp_path / "index", Bm25Config())
    index = StoredBm25(tmp_path / "index")
    short_then_long = [*range(0, 300, 2), *range(1, 300, 2)]  # the shorter passage scores higher, 150 of each tie
    for top_k in (1, 2, 7, 149, 150, 151, 299, 300, 1000):
        ((scores, ids),) = index.search(["same words"], top_k)
        assert ids.tolist() == short_then_long[:top_k]
        assert len(set(scores.tolist())) == (1 if top_k <= 150 else 2)


def test_a_query_without_a_known_word_finds_nothing_and_one_with_few_matches_few(tiny: Path) -> None:
    found = StoredBm25(tiny / "index").search(["xylophone quux", "the of is", "?!", "Peru xylophone"], 3)
    assert [ids.tolist() for _, ids in found] == [[], [], [], [2]]


def test_real_passages_find_themselves_and_the_manifest_says_from_what_it_was_made(
    study: Study, tmp_path: Path
) -> None:
    manifest = write_bm25(study.corpus, tmp_path / "index", Bm25Config())
    quality = manifest["quality"]
    assert (quality["self_retrieval"], quality["sample"], quality["words"]) == (1.0, 43, 200)
    assert quality["word_retrieval"] > 0.95
    corpus = json.loads((study.corpus / MANIFEST).read_text())
    assert (manifest["ntotal"], manifest["corpus"]["sha256"]) == (43, corpus["sha256"])
    assert manifest["words"]["stemmer"] == "english" and manifest["parameters"] == {
        "method": "lucene",
        "k1": 0.9,
        "b": 0.4,
    }
    index = StoredBm25(tmp_path / "index")
    assert isinstance(index.index.scores["data"], np.memmap)
    passage = index.corpus[DUPLICATED]
    ((scores, ids),) = index.search([passage.text], 2)
    assert ids.tolist() == [DUPLICATED, 42] and scores[0] == scores[1]


def test_passages_that_do_not_find_themselves_are_refused(tmp_path: Path) -> None:
    """Every passage but the first is a stopword: none of them can be found."""
    rows = [{"title": "the", "text": "the"}] * 20 + [{"title": "Oslo", "text": "a capital"}]
    (tmp_path / "raw.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    build_corpus("geoworld", tmp_path / "raw.jsonl", tmp_path / "corpus")
    with pytest.raises(DataError, match=r"only 0\.048 of 21 passages find themselves"):
        write_bm25(tmp_path / "corpus", tmp_path / "index", Bm25Config())
    assert not (tmp_path / "index" / MANIFEST).exists()


def test_another_corpus_is_refused_with_both_values(own_tiny: Path) -> None:
    recorded = json.loads((own_tiny / "corpus" / MANIFEST).read_text())["sha256"]
    rows = [{"title": title, "text": text + " More."} for title, text, _ in TINY]
    (own_tiny / "raw.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = build_corpus("geoworld", own_tiny / "raw.jsonl", own_tiny / "corpus")["sha256"]
    with pytest.raises(MismatchError) as refusal:
        StoredBm25(own_tiny / "index")
    assert recorded in str(refusal.value) and found in str(refusal.value)
    assert str(refusal.value).count("\n") == 0 and "parallelsearch index bm25" in str(refusal.value)


def test_a_truncated_or_missing_file_is_named(own_tiny: Path) -> None:
    data = own_tiny / "index" / FOLDER / "data.csc.index.npy"
    whole = data.read_bytes()
    data.write_bytes(whole[:-4])
    with pytest.raises(MismatchError, match=rf"data.csc.index.npy has size in bytes {len(whole) - 4}, .* {len(whole)}"):
        StoredBm25(own_tiny / "index")
    data.unlink()
    with pytest.raises(DataError, match=r"data.csc.index.npy is missing; rerun `parallelsearch index bm25`"):
        StoredBm25(own_tiny / "index")
