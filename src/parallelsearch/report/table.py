"""One table in three notations: CSV in full precision, Markdown and LaTeX (booktabs) rounded and with notes below."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from parallelsearch.files import replacing, write_text
from parallelsearch.visible import visible

EXTENSIONS = ("csv", "md", "tex")
NO_VALUE = "–"
DECIMALS = {
    "em": 3, "f1": 3, "decomposition_ratio": 3, "well_formed": 3, "answered": 3, "gold_recall": 3,
    "turns": 2, "llm_calls": 2, "searches": 2, "sub_queries": 2, "lambda_d": 2, "lambda_s": 2, "lambda_f": 2,
    "seconds": 3, "reward": 3,
}  # fmt: skip
_SUFFIXES = ("_low", "_high", "_difference", "_first", "_last", "_sd", "_published", "_distance")
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}", "–": "--",
}  # fmt: skip
_LATEX_CHARACTERS = str.maketrans(_LATEX)
_MARKUP = re.compile(
    r"\||`|<(?=[A-Za-z/!?])|(?<=\])[(\[]"
)  # columns, code, HTML, links: Markdown makes something of them
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # a spreadsheet computes a cell that begins so


@dataclass(frozen=True)
class Table:
    """Rows with a title and notes. `decimals` of a column overrides what its name implies.

    Markdown, LaTeX and the report print x, x_low and x_high as one column `x [low, high]`; the CSV keeps the three.
    """

    name: str
    title: str
    frame: pd.DataFrame
    notes: Sequence[str] = ()
    decimals: dict[str, int] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """The columns that Markdown and LaTeX print; the CSV has all."""
        names = list(self.frame.columns)
        ends = {f"{name}{end}" for name in names if self._has_interval(name) for end in ("_low", "_high")}
        return [name for name in names if name not in ends]

    @property
    def header(self) -> list[str]:
        """What Markdown and LaTeX print above each column; the CSV has the plain names."""
        return [self.headers.get(name, name.replace("_", " ")) for name in self.columns]

    def cells(self) -> list[list[str]]:
        """The rows as rounded text, in the order of `columns`."""
        return [[self._cell(row, name) for name in self.columns] for row in self.frame.to_dict("records")]

    def numeric(self) -> list[bool]:
        """For each of `columns` whether it is right-aligned."""
        return [pd.api.types.is_numeric_dtype(self.frame[name]) for name in self.columns]

    def _has_interval(self, name: str) -> bool:
        return {f"{name}_low", f"{name}_high"} <= set(self.frame.columns)

    def _cell(self, row: dict[Any, Any], name: str) -> str:
        decimals = self.decimals.get(name, _decimals(name))
        text = rounded(row[name], decimals)
        if not self._has_interval(name) or math.isnan(row[f"{name}_low"]):
            return text
        return f"{text} [{rounded(row[f'{name}_low'], decimals)}, {rounded(row[f'{name}_high'], decimals)}]"


def write_table(table: Table, stem: Path) -> list[Path]:
    """Writes `stem`.csv, .md and .tex; returns their paths."""
    paths = [Path(f"{stem}.{extension}") for extension in EXTENSIONS]
    with replacing(paths[0]) as partial:
        plain = table.frame.map(csv_cell).rename(columns=csv_cell)
        plain.to_csv(partial, index=False, lineterminator="\n")
    write_text(paths[1], markdown(table))
    write_text(paths[2], latex(table))
    return paths


def markdown(table: Table) -> str:
    """A GitHub-flavoured Markdown table; what Markdown or HTML would make something of is escaped in a cell."""
    rules = ["---:" if numeric else "---" for numeric in table.numeric()]
    lines = [_markdown_row(table.header), _markdown_row(rules), *map(_markdown_row, table.cells())]
    notes = [f"- {_markdown_text(note)}" for note in table.notes]
    return "\n".join([f"**{_markdown_text(table.title)}**", "", *lines, *([""] if notes else []), *notes]) + "\n"


def latex(table: Table) -> str:
    """A `table` environment that needs the package booktabs."""
    columns = "".join("r" if numeric else "l" for numeric in table.numeric())
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}[htbp]",
        r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
        rf"\caption{{{escaped(table.title)}}}",
        rf"\label{{tab:{table.name.replace('_', '-')}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        _latex_row(table.header),
        r"\midrule",
        *map(_latex_row, table.cells()),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\smallskip\parbox{{\linewidth}}{{\scriptsize {escaped(note)}}}" for note in table.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Text for LaTeX on one line: special characters escaped, characters that steer a reader written out."""
    return _one_line(text).translate(_LATEX_CHARACTERS)


def csv_cell(value: Any) -> Any:
    """A cell of a CSV file: text that a spreadsheet would compute gets an apostrophe before it, numbers stay."""
    if not isinstance(value, str):
        return value
    text = visible(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def rounded(value: Any, decimals: int) -> str:
    """A cell's text; a missing value is a dash."""
    if pd.isna(value):
        return NO_VALUE
    return f"{value:.{decimals}f}" if isinstance(value, float) else str(value)


def _decimals(name: str) -> int:
    if name.endswith(("_p", "_p_holm")):
        return 4
    while name not in DECIMALS and (suffix := next((s for s in _SUFFIXES if name.endswith(s)), "")):
        name = name.removesuffix(suffix)
    return DECIMALS.get(name, 3)


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_markdown_text, cells)) + " |"


def _markdown_text(text: str) -> str:
    return _MARKUP.sub(lambda found: "&lt;" if found.group() == "<" else f"\\{found.group()}", _one_line(text))


def _one_line(text: str) -> str:
    return " ".join(visible(text).split())


def _latex_row(cells: Sequence[str]) -> str:
    row = " & ".join(map(escaped, cells)) + r" \\"
    return f"{{}}{row}" if row.startswith(("[", "*")) else row  # which the \\ of the row before would take for its own
