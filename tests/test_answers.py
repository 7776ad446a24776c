"""Exact match and F1: vectors of public reports, the official SQuAD and HotpotQA rules, and real questions."""

from __future__ import annotations

import gzip
import json
import re
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallelsearch.answers import exact_match, f1_score, normalise, substring_match


@pytest.mark.parametrize(
    ("prediction", "golden", "expected"),
    [
        ("yes.", ["yes"], 1.0),
        ("Yes", ["yes"], 1.0),
        ("Beyonce", ["Beyoncé"], 0.0),
        ("caf\u00e9", ["cafe\u0301"], 0.0),  # composed and decomposed form
        ("\u201cParis\u201d", ["Paris"], 0.0),  # curly quotes are not ASCII punctuation
        ('"Paris"', ["Paris"], 1.0),
        ("1,000", ["1000"], 1.0),
        ("Spider-Man", ["Spider Man"], 0.0),
        ("Spider-Man", ["Spiderman"], 1.0),
        ("the  Beatles\n", ["Beatles"], 1.0),
        ("a theatre", ["theatre"], 1.0),  # an article only as a whole word
        ("Lima", ["Quito", "lima"], 1.0),
        ("Lima, Peru", ["Lima"], 0.0),
        ("Lima", [], 0.0),
        ("Lima", [None], 0.0),
        ("Lima", None, 0.0),
        ("Lima", [None, "Lima"], 1.0),
        (None, ["Lima"], 0.0),
        (None, [None], 0.0),
        ("", [""], 0.0),
        ("the", ["a"], 0.0),  # both normalise to nothing
        ("...", ["!"], 0.0),
        ("Lima", "Lima", 1.0),  # one golden answer that is not in a list
        ("L", "Lima", 0.0),
    ],
)
def test_exact_match(prediction, golden, expected):
    assert exact_match(prediction, golden) == expected


@pytest.mark.parametrize(
    ("prediction", "golden", "expected"),
    [
        ("Lima", ["Lima"], 1.0),
        ("the city of Lima", ["Lima"], 0.5),  # 1 of 3 words, 1 of 1
        ("Lima Peru", ["Lima Bolivia"], 0.5),
        ("New York New York", ["New York"], 2 / 3),  # repeated words count once each
        ("yes", ["yes"], 1.0),
        ("yes it is", ["yes"], 0.0),  # golden yes, prediction not exactly yes
        ("yes", ["yes it is"], 0.0),
        ("no", ["yes"], 0.0),
        ("noanswer", ["no answer"], 0.0),
        ("it is no use", ["no use"], 2 / 3),  # neither side is exactly 'no'
        ("Paris", ["London", "Paris France"], 2 / 3),  # the best golden answer
        ("the", ["a"], 0.0),
        ("", ["Lima"], 0.0),
        (None, ["Lima"], 0.0),
        ("Lima", [], 0.0),
        ("Lima", [None], 0.0),
        ("Lima", None, 0.0),
    ],
)
def test_f1(prediction, golden, expected):
    assert f1_score(prediction, golden) == pytest.approx(expected)


def official_normalise(text: str) -> str:
    """The order of steps of the SQuAD evaluation script, written independently."""
    kept = "".join(character for character in text.lower() if character not in set(string.punctuation))
    return re.sub(r"\s+", " ", re.sub(r"\b(?:a|an|the)\b", " ", kept)).strip()


def official_f1(prediction: str, golden: str) -> float:
    one, other = official_normalise(prediction).split(), official_normalise(golden).split()
    if (" ".join(one) in ("yes", "no", "noanswer") or " ".join(other) in ("yes", "no", "noanswer")) and one != other:
        return 0.0
    common = sum(min(count, other.count(word)) for word, count in Counter(one).items())
    return 0.0 if common == 0 else 2 * common / (len(one) + len(other))


@pytest.mark.parametrize(
    ("prediction", "golden", "expected"),
    [
        ("It is the Eiffel Tower, in Paris.", ["eiffel tower"], 1.0),
        ("Eiffel", ["Eiffel Tower"], 0.0),
        ("São Paulo, Brazil", ["Lima", "São Paulo"], 1.0),
        ("yes", ["no"], 0.0),
        ("anything", ["the", ""], 0.0),  # golden answers that normalise to nothing are in every text
        (None, ["x"], 0.0),
        ("", [], 0.0),
    ],
)
def test_substring_match(prediction, golden, expected):
    assert substring_match(prediction, golden) == expected


@given(st.text(alphabet="aAnthe yes.no-'é1, ", max_size=30), st.text(alphabet="aAnthe yes.no-'é1, ", max_size=30))
def test_scores_follow_the_official_scripts(prediction, golden):
    assert normalise(prediction) == official_normalise(prediction)
    same = official_normalise(prediction) == official_normalise(golden) != ""
    assert exact_match(prediction, [golden]) == float(same)
    assert f1_score(prediction, [golden]) == pytest.approx(official_f1(prediction, golden))
    assert f1_score(prediction, [golden]) >= exact_match(prediction, [golden])


def test_real_golden_answers_match_themselves(shared_data):
    """Every golden answer that holds more than articles and punctuation, of two data sets."""
    seen = 0
    for name in ("hotpotqa", "nq"):
        with gzip.open(shared_data / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            for line in lines:
                for golden in json.loads(line)["golden_answers"]:
                    if official_normalise(golden):
                        assert exact_match(golden, [golden]) == f1_score(golden, [golden]) == 1.0
                        seen += 1
    assert seen > 500
