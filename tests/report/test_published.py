"""The published numbers as data: complete, consistent with what the paper derives from them, and validated."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from parallelsearch.errors import ConfigError
from parallelsearch.report.published import (
    PARALLELSEARCH,
    PUBLISHED_DIR,
    PublishedRow,
    read_all_published,
    read_published,
)

INSTRUCT = "Qwen2.5-7B-Instruct"


def rows(table: int, method: str, model: str = INSTRUCT) -> dict[str, PublishedRow]:
    return {
        row.subset: row for row in read_published().rows if (row.table, row.method, row.model) == (table, method, model)
    }


def test_tables_3_4_and_6_are_complete() -> None:
    found = [row.table for row in read_published().rows]
    assert [found.count(table) for table in (3, 4, 6)] == [3 * 2 * 3, 7 * 2, 3 * 2 * 3]


def test_the_headline_gain_of_12_7_points_follows_from_table_3() -> None:
    ours, theirs = rows(3, "ParallelSearch"), rows(3, "Search-R1")
    assert sum(ours[subset].em - theirs[subset].em for subset in ours) / 3 == pytest.approx(0.127, abs=0.0005)


def test_the_headline_69_6_percent_of_turns_follows_from_table_3() -> None:
    turns = {
        method: sum(row.turns or 0 for model in (INSTRUCT, "Qwen2.5-7B") for row in rows(3, method, model).values())
        for method in ("ParallelSearch", "Search-R1")
    }
    assert turns == pytest.approx({"ParallelSearch": 14.04, "Search-R1": 20.15})
    assert turns["ParallelSearch"] / turns["Search-R1"] == pytest.approx(0.696, abs=0.001)


def test_table_4_repeats_the_instruct_run_and_marks_the_copied_row() -> None:
    published = read_published()
    best = published.ablation_row("HotpotQA-par", 0.15, 0.35)
    main = rows(3, "ParallelSearch")["HotpotQA-par"]
    assert best is not None
    assert (best.em, best.decomposition_ratio, best.turns) == (main.em, main.decomposition_ratio, main.turns)
    copied, source = (published.ablation_row("2wiki-par", *pair) for pair in ((0.15, 0.50), (0.50, 0.35)))
    assert copied is not None and source is not None
    assert (copied.em, copied.turns) == (source.em, source.turns)
    assert "copied-row" in copied.caveats
    assert published.ablation_row("HotpotQA-par", 0.0, 0.0) is None


def test_a_fault_in_the_file_names_the_key(tmp_path: Path) -> None:
    good = yaml.safe_load((PUBLISHED_DIR / PARALLELSEARCH).read_text(encoding="utf-8"))

    def refused(change, message: str) -> None:
        values = yaml.safe_load(yaml.safe_dump(good))
        change(values)
        path = tmp_path / "numbers.yaml"
        path.write_text(yaml.safe_dump(values), encoding="utf-8")
        with pytest.raises(ConfigError, match=message):
            read_published(path)

    refused(lambda v: v["rows"][0].update(em=58.0), r"rows\.0\.em' is 58\.0")
    refused(lambda v: v["rows"][0].update(caveats=["nonsense"]), "caveat 'nonsense'")
    refused(lambda v: v["rows"].append(v["rows"][0]), "stands there twice")
    refused(lambda v: v["rows"][0].update(emm=1), "unknown key 'rows.0.emm'")
    refused(lambda v: v["subsets"].pop("2wiki-par"), "subset '2wiki-par', which is not among subsets")
    refused(lambda v: v.pop("source"), "key 'source' is missing")


def test_table_2_averages_are_those_that_were_published() -> None:
    """Averages over the seven sets, as printed in the last column of each paper's Table 2."""
    averages = {
        ("ParallelSearch", "R1", INSTRUCT): 0.271,
        ("ParallelSearch", "Search-R1", INSTRUCT): 0.370,
        ("ParallelSearch", "ZeroSearch", INSTRUCT): 0.391,
        ("ParallelSearch", "ParallelSearch", INSTRUCT): 0.425,
        ("ParallelSearch", "Search-R1", "Qwen2.5-7B"): 0.434,
        ("ParallelSearch", "OTC", "Qwen2.5-7B"): 0.398,
        ("ParallelSearch", "ZeroSearch", "Qwen2.5-7B"): 0.409,
        ("ParallelSearch", "ParallelSearch", "Qwen2.5-7B"): 0.458,
        ("Search-R1", "Direct", INSTRUCT): 0.181,
        ("Search-R1", "CoT", INSTRUCT): 0.106,
        ("Search-R1", "IRCoT", INSTRUCT): 0.226,  # printed as 0.239, which is not the average of its row
        ("Search-R1", "RAG", INSTRUCT): 0.304,
        ("Search-R1", "Search-o1", INSTRUCT): 0.206,
        ("Search-R1", "SFT", INSTRUCT): 0.207,
        ("Search-R1", "Rejection sampling", INSTRUCT): 0.348,
        ("Search-R1", "Search-R1", INSTRUCT): 0.385,
    }
    files = {numbers.source.title: numbers for numbers in read_all_published()}
    for (title, method, model), average in averages.items():
        found = [row.em for row in files[title].every_row if (row.table, row.method, row.model) == (2, method, model)]
        assert len(found) == 7
        assert sum(found) / 7 == pytest.approx(average, abs=0.0011), (title, method, model)
