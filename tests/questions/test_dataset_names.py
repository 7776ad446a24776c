"""Names of data sets."""

from __future__ import annotations

import pytest

from parallelsearch.errors import DataError
from parallelsearch.questions.names import DATASETS, dataset_name, recognised
from parallelsearch.questions.reader import READERS_BY_DATASET


@pytest.mark.parametrize("name", ["MultiHopRAG", "multihoprag", "multihop-rag", "MultiHop-RAG", "multihop_rag"])
def test_spellings_of_multihop_rag_are_one_data_set(name: str) -> None:
    assert dataset_name(name) == "multihop_rag"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("HotpotQA", "hotpotqa"),
        ("2WikiMultiHopQA", "2wikimultihopqa"),
        ("2wiki", "2wikimultihopqa"),
        ("NQ", "nq"),
        ("nq-open", "nq"),
        ("Natural Questions", "nq"),
        ("PopQA", "popqa"),
        ("MuSiQue", "musique"),
        ("GeoWorld", "geoworld"),
    ],
)
def test_usual_spellings_are_accepted(name: str, expected: str) -> None:
    assert dataset_name(name) == expected


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DataError) as refused:
        dataset_name("squad")
    assert "'squad'" in str(refused.value)
    assert all(name in str(refused.value) for name in DATASETS)


def test_the_source_a_row_names_is_recognised() -> None:
    assert recognised("chiayewken/bamboogle") == "bamboogle"
    assert recognised("searchR1_nq") == "nq"
    assert recognised("openai/gsm8k") is None


def test_every_data_set_has_a_reader() -> None:
    assert set(READERS_BY_DATASET) == set(DATASETS)
