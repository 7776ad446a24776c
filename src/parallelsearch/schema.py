"""The configuration as a JSON schema, and the merged configuration of a study as a file.

workflow/schemas/*.schema.json are generated from the typed models of config/, never edited.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from parallelsearch.config import ArmConfig, StudyConfig
from parallelsearch.errors import ConfigError
from parallelsearch.files import write_text
from parallelsearch.repeated_keys import json_value

SCHEMAS = Path("workflow/schemas")
FIX = "parallelsearch config schema"

app = typer.Typer(help="Write the configuration's schema or the merged configuration.", no_args_is_help=True)


def schemas() -> dict[str, dict[str, Any]]:
    """File name -> JSON schema (draft 2020-12) of a study, and of an overlay in config/arms/."""
    study = StudyConfig.model_json_schema()
    arm = ArmConfig.model_json_schema()
    # An overlay states only what differs from the study; its name is the name of its file.
    arm["properties"].pop("name")
    arm.pop("required")
    arm["title"] = "Overlay of one reward arm"
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {"config.schema.json": dialect | study, "arm.schema.json": dialect | arm}


def render(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


@app.callback()
def config() -> None:
    """The typed configuration: its schema, and what a study merged it to."""


@app.command("schema")
def write_schemas(
    folder: Path = typer.Argument(SCHEMAS, help="Folder of the schema files."),
    check: bool = typer.Option(False, "--check", help="Write nothing; fail when a file differs from the models."),
) -> None:
    """Write the JSON schemas of the configuration, or check that they are up to date."""
    for name, schema in schemas().items():
        path = folder / name
        if not check:
            write_text(path, render(schema))
            typer.echo(path)
        elif not path.is_file() or path.read_text(encoding="utf-8") != render(schema):
            raise ConfigError(f"{path} differs from the models in config/; run `{FIX}` and commit the result.")


@app.command("write")
def write_merged(
    out: Path = typer.Argument(help="File to write (YAML)."),
    settings: str = typer.Option(help="The study and its arms as one JSON object."),
) -> None:
    """Write a merged configuration as YAML."""
    import yaml

    try:
        values = json_value(settings, "config write --settings")
    except json.JSONDecodeError as error:
        raise ConfigError(f"--settings is not valid JSON ({error}).") from None
    header = "# The configuration this study was planned with, complete. Written by the workflow: do not edit.\n"
    write_text(out, header + yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120))
