"""How every figure looks and how it is saved: colour-blind-safe, readable in print, byte for byte reproducible."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from parallelsearch.files import replacing
from parallelsearch.report.table import csv_cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXTENSIONS = ("pdf", "png")
# Okabe and Ito's palette without yellow, which is too light on white paper; hatches and markers repeat the difference.
COLOURS = ("#7f7f7f", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
HATCHES = ("", "//", "\\\\", "..", "xx", "--", "oo", "++")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_METADATA: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None, "ModDate": None, "Producer": None, "Creator": None},
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
}
_STYLE: Any = {
    "font.size": 9,
    "font.family": "DejaVu Sans",
    "text.parse_math": False,  # a $ in a name is a $
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "savefig.dpi": 200,
    "svg.hashsalt": "parallelsearch",
    "pdf.fonttype": 42,
    "hatch.linewidth": 0.6,
}


@dataclass(frozen=True)
class Drawing:
    """A figure, the data it shows, and one sentence that says what it shows."""

    name: str
    caption: str
    figure: Figure
    data: pd.DataFrame


@contextmanager
def canvas(rows: int, columns: int, width: float, height: float) -> Iterator[tuple[Figure, Any]]:
    """A figure (inches) with axes [rows, columns] in the house style, drawn without a display."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure, figure.subplots(rows, columns, squeeze=False)


def write_drawing(drawing: Drawing, stem: Path) -> list[Path]:
    """Writes `stem`.pdf, .png and .csv (the data shown); returns their paths."""
    paths = [Path(f"{stem}.{extension}") for extension in (*EXTENSIONS, "csv")]
    for path in paths[:-1]:
        with replacing(path) as partial:
            partial.write_bytes(rendered(drawing, path.suffix[1:]))
    with replacing(paths[-1]) as partial:
        drawing.data.map(csv_cell).to_csv(partial, index=False, lineterminator="\n")
    return paths


def rendered(drawing: Drawing, extension: str) -> bytes:
    """The figure as pdf, png or svg; equal drawings give equal bytes."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        drawing.figure.savefig(buffer, format=extension, metadata=_METADATA[extension])
    return buffer.getvalue()


def styles(arms: list[str]) -> dict[str, dict[str, str]]:
    """Colour, hatch and marker of each arm, by its place among the study's arms."""
    return {
        arm: {
            "color": COLOURS[index % len(COLOURS)],
            "hatch": HATCHES[index % len(HATCHES)],
            "marker": MARKERS[index % len(MARKERS)],
        }
        for index, arm in enumerate(arms)
    }


def grouped_bars(
    axis: Any, data: pd.DataFrame, groups: list[str], arms: list[str], look: dict[str, Any]
) -> dict[tuple[str, str], float]:
    """A bar for each row of `data` (arm, structure, value; optional low and high): arms side by side in each group.

    Returns the middle of each bar on the axis by (arm, group).
    """
    width = 0.84 / len(arms)
    places = {
        (arm, group): number + (place - (len(arms) - 1) / 2) * width
        for number, group in enumerate(groups)
        for place, arm in enumerate(arms)
    }
    for arm in arms:
        rows = data[data["arm"] == arm]
        spread = [rows["value"] - rows["low"], rows["high"] - rows["value"]] if "low" in rows else None
        axis.bar(
            [places[arm, group] for group in rows["structure"]],
            rows["value"],
            width=width,
            color=look[arm]["color"],
            hatch=look[arm]["hatch"],
            edgecolor="white",
            linewidth=0.4,
            yerr=None if spread is None else np.nan_to_num(np.array(spread)).clip(min=0),
            error_kw={"elinewidth": 0.9, "capsize": 2, "ecolor": "#222222"},
            label=arm,
        )
    return places


def dodge(count: int, width: float) -> list[float]:
    """Shifts of `count` things that may coincide, side by side over `width`."""
    return [float(shift) for shift in np.linspace(-width / 2, width / 2, count)] if count > 1 else [0.0] * count


def legend(figure: Any, axes: Any) -> None:
    """One legend below all panels, each label once."""
    handles: dict[str, Any] = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=min(5, len(handles)), fontsize=8)
