"""`parallelsearch track init`, `track collect` and `track import`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

app = typer.Typer(no_args_is_help=True, help="Collect results into MLflow.")

_SETTINGS = "JSON object of the tracking section: experiment, uri, artifacts, traces_per_run, patience."


@app.command()
def init(
    folder: Path = typer.Argument(help="Folder of the store: results/mlflow."),
    settings: str = typer.Option("{}", help=_SETTINGS),
) -> None:
    """Create the store and the experiment once, before anything is collected."""
    from parallelsearch.config import TrackingConfig
    from parallelsearch.config_files import from_json
    from parallelsearch.tracking.store import create

    store = create(folder, from_json(TrackingConfig, settings, "--settings"))
    typer.echo(store.place.name)


@app.command()
def collect(
    results: Path = typer.Argument(help="Results folder of the study."),
    settings: str = typer.Option("{}", help=_SETTINGS),
) -> None:
    """Bring the store up to date with the result files; writes mlflow/collected.json last.

    Where the configured store does not answer, the study's own is filled, and `track import` brings it over later.
    """
    from parallelsearch.config import TrackingConfig
    from parallelsearch.config_files import from_json
    from parallelsearch.tracking.collect import collect as collect_results

    summary = collect_results(results, from_json(TrackingConfig, settings, "--settings"))
    _print(summary)
    if summary["pending"]:
        typer.echo(
            f"the MLflow store {summary['pending']} does not answer: the runs are in {summary['store']};"
            f" run `parallelsearch track import {results}` when it does.",
            err=True,
        )


@app.command("import")
def import_results(
    results: Path = typer.Argument(help="Results folder of the study."),
    settings: str = typer.Option("", help=f"{_SETTINGS} Default: what the study was tracked with."),
) -> None:
    """Bring runs that were collected while the store did not answer into it, each exactly once."""
    from parallelsearch.config import TrackingConfig
    from parallelsearch.config_files import from_json
    from parallelsearch.tracking.collect import import_results as bring

    summary = bring(results, from_json(TrackingConfig, settings, "--settings") if settings else None)
    _print(summary)


def _print(summary: dict[str, Any]) -> None:
    for run in summary["runs"]:
        ended = f", ended early: {run['failure']}" if run["failure"] else ", not complete"
        state = "" if run["complete"] else ended
        typer.echo(f"{run['arm']} seed {run['seed']}: {run['action']}, {run['traces']} traces{state}")
    for failure in summary["failed_traces"]:
        typer.echo(f"trace not written: {failure}", err=True)
