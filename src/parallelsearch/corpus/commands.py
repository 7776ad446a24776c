"""`parallelsearch corpus ...`"""

from __future__ import annotations

from pathlib import Path

import typer

SHOWN_TITLES = 20

app = typer.Typer(help="Raw collections of text -> passages.parquet.", no_args_is_help=True)


@app.callback()
def corpus() -> None:
    """Raw collections of text -> passages.parquet."""


@app.command()
def build(
    source: str = typer.Argument(
        help="Layout of the file: geoworld, dpr, wiki18, flashrag, qa_contexts, mediawiki or own."
    ),
    file: Path = typer.Argument(help="The raw file, plain, gzip or bzip2."),
    out_dir: Path = typer.Argument(help="Folder for passages.parquet and manifest.json."),
    licence: str = typer.Option("unknown", help="Licence of the text, written to the manifest."),
    workers: int = typer.Option(1, min=1, help="Processes that strip the markup of a dump."),
    layout: str = typer.Option("{}", help="JSON object with the keys of corpora.NAME.layout (source own)."),
    sha256: str = typer.Option("", help="Checksum that FILE has to have; default: the one in FILE.sha256, if any."),
) -> None:
    """Write the passages of FILE to OUT_DIR/passages.parquet."""
    from parallelsearch.config import PassageLayout
    from parallelsearch.config_files import from_json
    from parallelsearch.corpus.passages import build_corpus
    from parallelsearch.downloads import require_recorded

    require_recorded(file, sha256 or None)
    own = from_json(PassageLayout, layout, "corpus build --layout") if layout != "{}" else None
    manifest = build_corpus(source, file, out_dir, licence, workers, own)
    typer.echo(f"{out_dir}: {manifest['rows']} passages, {manifest['words_per_passage']} words each on average")
    dropped = ", ".join(f"{count} {reason}" for reason, count in manifest["records_dropped"].items())
    typer.echo(f"{manifest['records_read']} records read; left out: {dropped or 'none'}")
    for reason, titles in manifest["titles_unread"].items():
        more = f" and {len(titles) - SHOWN_TITLES} more (see manifest.json)" if len(titles) > SHOWN_TITLES else ""
        typer.echo(f"not read, {reason}: {', '.join(map(repr, titles[:SHOWN_TITLES]))}{more}")
