"""One table in three notations."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from parallelsearch.report.table import NO_VALUE, Table, escaped, latex, markdown, write_table

FRAME = pd.DataFrame(
    {
        "arm": ["a_b & 50%", "c|d"],
        "seed": [0, 1],
        "em": [1 / 3, math.nan],
        "em_low": [0.1, math.nan],
        "em_high": [0.5, math.nan],
        "turns": [2.0, 3.456],
    }
)
TABLE = Table("by_arm", "Arms & figures", FRAME, ["sha256 12ab_34", "top-k 2"])


def test_csv_keeps_full_precision_and_plain_names(tmp_path: Path) -> None:
    csv, md, tex = write_table(TABLE, tmp_path / "by_arm")
    assert [path.name for path in (csv, md, tex)] == ["by_arm.csv", "by_arm.md", "by_arm.tex"]
    assert csv.read_text().splitlines()[0] == "arm,seed,em,em_low,em_high,turns"
    pd.testing.assert_frame_equal(pd.read_csv(csv), FRAME, check_exact=True)


def test_markdown_rounds_aligns_and_escapes() -> None:
    lines = markdown(TABLE).splitlines()
    assert lines[0] == "**Arms & figures**"
    assert lines[2:6] == [
        "| arm | seed | em | turns |",
        "| --- | ---: | ---: | ---: |",
        "| a_b & 50% | 0 | 0.333 [0.100, 0.500] | 2.00 |",
        rf"| c\|d | 1 | {NO_VALUE} | 3.46 |",
    ]
    assert lines[-2:] == ["- sha256 12ab_34", "- top-k 2"]


def test_latex_is_booktabs_with_every_special_character_escaped() -> None:
    text = latex(TABLE)
    assert r"\caption{Arms \& figures}" in text
    assert r"\begin{tabular}{lrrr}" in text
    assert r"a\_b \& 50\% & 0 & 0.333 [0.100, 0.500] & 2.00 \\" in text
    assert "c|d & 1 & -- & 3.46" in text
    assert r"sha256 12ab\_34" in text
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    assert escaped(r"\a{b}~^<$#") == r"\textbackslash{}a\{b\}\textasciitilde{}\textasciicircum{}\textless{}\$\#"


def test_intervals_are_printed_beside_their_value() -> None:
    table = Table("t", "T", FRAME)
    assert table.header == ["arm", "seed", "em", "turns"]
    assert table.cells() == [["a_b & 50%", "0", "0.333 [0.100, 0.500]", "2.00"], ["c|d", "1", NO_VALUE, "3.46"]]
    assert table.numeric() == [False, True, True, True]
