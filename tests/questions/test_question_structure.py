"""The table of structures: expected values are those of the design and of the paper's appendix A.2."""

from __future__ import annotations

from pathlib import Path

import pytest

from parallelsearch.errors import ConfigError, DataError
from parallelsearch.questions.names import DATASETS
from parallelsearch.questions.structure import load_structures, needs_type, structure_of, structure_of_type, table_path

TAGS = [
    ("hotpotqa", "comparison", "parallel"),
    ("hotpotqa", "bridge", "sequential"),
    ("2wikimultihopqa", "comparison", "parallel"),
    ("2wikimultihopqa", "inference", "sequential"),
    ("2wikimultihopqa", "compositional", "sequential"),
    ("2wikimultihopqa", "bridge_comparison", "mixed"),
    ("multihop_rag", "comparison_query", "parallel"),
    ("multihop_rag", "inference_query", "sequential"),
    ("multihop_rag", "temporal_query", "other"),
    ("multihop_rag", "null_query", "other"),
    ("geoworld", "comparison", "parallel"),
    ("geoworld", "bridge", "sequential"),
    ("geoworld", "bridge_comparison", "mixed"),
    ("geoworld", "single", "single"),
    ("musique", "3hop1", "sequential"),
    ("musique", None, "sequential"),
    ("bamboogle", None, "sequential"),
    ("nq", None, "single"),
    ("triviaqa", None, "single"),
    ("popqa", "screenwriter", "single"),
]


@pytest.mark.parametrize(("dataset", "type", "expected"), TAGS)
def test_tag(dataset: str, type: str | None, expected: str) -> None:
    assert structure_of(dataset, type).value == expected


def test_the_table_holds_exactly_these_types() -> None:
    held = {(dataset, type) for dataset, types in load_structures().items() for type in types if type != "*"}
    assert held == {(dataset, type) for dataset, type, _ in TAGS if needs_type(dataset)}
    assert set(load_structures()) == set(DATASETS)


def test_other_spellings_of_the_data_set_are_accepted() -> None:
    assert structure_of("MultiHopRAG", "comparison_query").value == "parallel"


def test_an_unknown_type_names_data_set_type_and_row_and_lists_the_known() -> None:
    with pytest.raises(DataError) as refused:
        structure_of("hotpotqa", "compare", row="dev.json, line 7 (array index 6)")
    place, _, rest = str(refused.value).partition(": ")
    assert place == "dev.json, line 7 (array index 6)"
    assert rest == "type 'compare' is unknown in data set hotpotqa; its types: comparison, bridge."


def test_a_missing_type_is_refused_where_the_tag_depends_on_it() -> None:
    with pytest.raises(DataError, match="without a type is unknown in data set 2wikimultihopqa"):
        structure_of("2wikimultihopqa", None)
    assert needs_type("2wikimultihopqa") and not needs_type("MuSiQue")


def test_an_unknown_data_set_is_refused() -> None:
    with pytest.raises(DataError, match="'squad' is not a known data set"):
        structure_of("squad", "bridge")


def test_a_type_without_its_data_set_is_tagged_when_all_agree() -> None:
    assert structure_of_type("comparison").value == "parallel"
    assert structure_of_type("bridge_comparison").value == "mixed"
    with pytest.raises(DataError, match=r"'3hop1' is unknown; known types: bridge, bridge_comparison, comparison"):
        structure_of_type("3hop1")


def test_another_table_can_be_named(tmp_path: Path) -> None:
    text = table_path().read_text().replace("bridge_comparison: mixed\n", "bridge_comparison: parallel\n")
    other = tmp_path / "mine.yaml"
    other.write_text(text)
    assert structure_of("2wiki", "bridge_comparison", table=other).value == "parallel"
    assert structure_of("2wiki", "bridge_comparison").value == "mixed"
    with pytest.raises(DataError, match="differs between data sets"):
        structure_of_type("bridge_comparison", table=other)


def test_the_table_is_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert structure_of("hotpotqa", "bridge").value == "sequential"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("bridge: sequential", "bridge: serial"), "hotpotqa.bridge is 'serial'; allowed: parallel, sequential"),
        (("musique:", "musik:"), "'musik' is not a known data set"),
        (('bamboogle: {"*": sequential}\n', ""), "has no entry for bamboogle"),
        (('nq: {"*": single}', "nq: single"), "nq holds 'single', not a mapping"),
    ],
)
def test_a_faulty_table_is_refused_with_the_faulty_entry(
    tmp_path: Path, change: tuple[str, str], sentence: str
) -> None:
    faulty = tmp_path / "structure.yaml"
    text = table_path().read_text()
    assert change[0] in text
    faulty.write_text(text.replace(*change, 1))
    with pytest.raises(ConfigError) as refused:
        load_structures(faulty)
    assert sentence in str(refused.value) and str(faulty) in str(refused.value)
