"""`parallelsearch questions import`: a data set's own file as a question file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parallelsearch.config import OWN, QuestionLayout
from parallelsearch.errors import ConfigError
from parallelsearch.questions.reader import Skip, read_file

app = typer.Typer(
    help="Questions of the data sets, tagged parallel, sequential, single, mixed or other.", no_args_is_help=True
)


@app.callback()
def _group() -> None:
    """Keeps `import` a sub-command although it is the only one."""


@app.command("import")
def import_questions(
    dataset: Annotated[
        str, typer.Argument(help="Data set, e.g. hotpotqa, 2wikimultihopqa, MultiHop-RAG; own: see --layout.")
    ],
    file: Annotated[Path, typer.Argument(help="Its file: the authors' layout, FlashRAG's or veRL's; gzip or not.")],
    out: Annotated[Path, typer.Argument(help="Parquet file to write.")],
    split: Annotated[
        str | None, typer.Option(help="Name of the split; rows that say they are of another are left out.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Stop after so many questions.")] = None,
    skip: Annotated[
        list[Skip] | None, typer.Option(help="Leave such rows out instead of refusing the file; repeatable.")
    ] = None,
    answers: Annotated[
        Path | None, typer.Option(help="File of the answers by query id, where MultiHop-RAG comes in two files.")
    ] = None,
    expect: Annotated[
        str,
        typer.Option(help='JSON object of the wanted sizes, {"questions": 7405, "structures": {"parallel": 1487}}.'),
    ] = "{}",
    structures: Annotated[Path | None, typer.Option(help="Table to use instead of config/structure.yaml.")] = None,
    name: Annotated[str, typer.Option(help="Name of a data set of one's own.")] = OWN,
    layout: Annotated[
        str, typer.Option(help="JSON object with the keys of datasets.NAME.layout, for a data set of one's own.")
    ] = "{}",
) -> None:
    """Writes the questions of FILE to OUT and prints their number, in all and by structure."""
    from parallelsearch.config_files import from_json
    from parallelsearch.downloads import require_recorded
    from parallelsearch.files import sha256
    from parallelsearch.questions.sizes import WantedSizes, check_sizes
    from parallelsearch.questions.store import Provenance, counts_by_structure, write_questions

    wanted = from_json(WantedSizes, expect, "questions import --expect")
    own = from_json(QuestionLayout, layout, "questions import --layout") if dataset == OWN else None
    if own is None and (layout != "{}" or name != OWN):
        raise ConfigError(f"questions import: --name and --layout are for the data set '{OWN}', but it is '{dataset}'.")
    require_recorded(file, wanted.sha256)
    reading = read_file(
        name if own else dataset,
        file,
        split=split,
        limit=limit,
        skip=skip or (),
        answers=answers,
        structures=structures,
        layout=own,
    )
    check_sizes(reading.questions, wanted, file)
    provenance = Provenance(
        reader=reading.dataset,
        layout=reading.layout,
        source=file.name,
        source_sha256=sha256(file),
        answers_sha256=sha256(answers) if answers else "",
        split=split,
        limit=limit,
        left_out=reading.left_out,
    )
    write_questions(out, reading.questions, provenance)
    typer.echo(
        _line(
            reading.dataset,
            reading.layout,
            len(reading.questions),
            counts_by_structure(reading.questions),
            reading.left_out,
        )
    )


def _line(dataset: str, layout: str, count: int, structures: dict[str, int], left_out: dict[str, int]) -> str:
    tags = ", ".join(f"{tag} {number}" for tag, number in structures.items())
    gone = "; left out: " + ", ".join(f"{number} {why}" for why, number in left_out.items()) if left_out else ""
    return f"{count} questions of {dataset} ({layout} layout): {tags}{gone}"
