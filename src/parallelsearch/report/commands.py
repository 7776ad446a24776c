"""`parallelsearch tables`, `figures` and `report`: one target a call, everything from files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Tables, figures and the report of a study.")

_NAME = "DATASET_by_structure, DATASET_comparison, ablation_grid, ...; an unknown name lists all."
_INPUTS = "Episodes files (eval/*/seed*/*/episodes.parquet) and training folders (train/*/seed*, or their done.json)."
_SETTINGS = "JSON object with baseline, arms (their order), descriptions and evaluation."


@app.command()
def tables(
    name: str = typer.Argument(help=_NAME),
    out_stem: Path = typer.Argument(help="Output without extension; .csv, .md and .tex are written."),
    inputs: list[Path] = typer.Argument(help=_INPUTS),
    settings: str = typer.Option("{}", help=_SETTINGS),
    published: Path | None = typer.Option(None, help="Folder of published numbers (default: config/published)."),
) -> None:
    """Write one table."""
    from parallelsearch.report.published import PUBLISHED_DIR
    from parallelsearch.report.study import read_study
    from parallelsearch.report.table import write_table
    from parallelsearch.report.tables import build

    table = build(name, read_study(inputs, settings), published or PUBLISHED_DIR)
    for path in write_table(table, out_stem):
        typer.echo(path)


@app.command()
def figures(
    name: str = typer.Argument(help="by_structure, training_curves, ...; an unknown name lists all."),
    out_stem: Path = typer.Argument(help="Output without extension; .pdf, .png and .csv (its data) are written."),
    inputs: list[Path] = typer.Argument(help=_INPUTS),
    settings: str = typer.Option("{}", help=_SETTINGS),
) -> None:
    """Draw one figure."""
    from parallelsearch.report.drawing import write_drawing
    from parallelsearch.report.figures import build
    from parallelsearch.report.study import read_study

    for path in write_drawing(build(name, read_study(inputs, settings)), out_stem):
        typer.echo(path)


@app.command()
def findings(
    inputs: Annotated[list[Path], typer.Argument(help=_INPUTS)],
    settings: Annotated[str, typer.Option(help=_SETTINGS)] = "{}",
    out: Annotated[Path | None, typer.Option(help="File to write them to as well (Markdown).")] = None,
) -> None:
    """Say what the study found; no difference is claimed whose interval contains none."""
    from parallelsearch.files import write_text
    from parallelsearch.report.findings import findings as found
    from parallelsearch.report.study import read_study
    from parallelsearch.visible import visible

    text = "".join(f"- {visible(sentence)}\n" for sentence in found(read_study(inputs, settings)))
    if out:
        write_text(out, text)
    typer.echo(text, nl=False)


@app.command()
def report(
    out: Path = typer.Argument(help="The HTML file."),
    inputs: list[Path] = typer.Argument(help=_INPUTS),
    settings: str = typer.Option("{}", help=_SETTINGS),
    published: Path | None = typer.Option(None, help="Folder of published numbers (default: config/published)."),
) -> None:
    """Write the report: one HTML file that needs nothing else."""
    from parallelsearch.files import write_text
    from parallelsearch.report.page import render
    from parallelsearch.report.published import PUBLISHED_DIR
    from parallelsearch.report.study import read_study

    write_text(out, render(read_study(inputs, settings), published or PUBLISHED_DIR))
    typer.echo(out)
