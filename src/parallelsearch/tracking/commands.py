"""`parallelsearch track init` and `track collect`."""

from __future__ import annotations

from pathlib import Path

import typer

app = typer.Typer(no_args_is_help=True, help="Collect results into MLflow.")

_SETTINGS = "JSON object of the tracking section: experiment, uri, traces_per_run."


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
    typer.echo(store.uri)


@app.command()
def collect(
    results: Path = typer.Argument(help="Results folder of the study."),
    settings: str = typer.Option("{}", help=_SETTINGS),
) -> None:
    """Bring the store up to date with the result files; writes mlflow/collected.json last."""
    from parallelsearch.config import TrackingConfig
    from parallelsearch.config_files import from_json
    from parallelsearch.tracking.collect import collect as collect_results

    summary = collect_results(results, from_json(TrackingConfig, settings, "--settings"))
    for run in summary["runs"]:
        ended = f", ended early: {run['failure']}" if run["failure"] else ", not complete"
        state = "" if run["complete"] else ended
        typer.echo(f"{run['arm']} seed {run['seed']}: {run['action']}, {run['traces']} traces{state}")
    for failure in summary["failed_traces"]:
        typer.echo(f"trace not written: {failure}", err=True)
