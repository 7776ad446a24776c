"""`parallelsearch encoder ...`, `embed`, `embed-manifest`, `index ...` and `retriever ...`"""

from __future__ import annotations

from pathlib import Path

import typer

from parallelsearch.retrieval import kind_commands
from parallelsearch.retrieval.recall_command import recall

encoder = typer.Typer(help="Encoders.", no_args_is_help=True)
index = typer.Typer(help="Search indexes.", no_args_is_help=True)
retriever = typer.Typer(help="The retriever behind HTTP.", no_args_is_help=True)


def mount(app: typer.Typer) -> None:
    """Adds this area's commands to the program."""
    app.add_typer(encoder, name="encoder")
    kind_commands.add_to(index)
    retriever.command("recall")(recall)
    app.add_typer(index, name="index")
    app.add_typer(kind_commands.reranker, name="reranker")
    app.add_typer(retriever, name="retriever")
    app.command("embed")(embed)
    app.command("embed-manifest")(embed_manifest)


@encoder.callback()
def _encoder() -> None:
    """Encoders."""


@index.callback()
def _index() -> None:
    """Search indexes."""


@retriever.callback()
def _retriever() -> None:
    """The retriever behind HTTP."""


@encoder.command("export")
def export(
    name: str = typer.Argument(help="Name of a declaration in config/encoders/."),
    out_dir: Path = typer.Argument(help="Folder for weights, tokenizer and manifest.json."),
) -> None:
    """Write the declared encoder to OUT_DIR in Hugging Face layout."""
    from parallelsearch.retrieval.encoding.export import export_encoder

    manifest = export_encoder(name, out_dir)
    typer.echo(f"{out_dir}: {manifest['model']}, {manifest['dim']} dimensions")


def embed(
    corpus_dir: Path = typer.Argument(help="Folder written by `corpus build`."),
    encoder_dir: Path = typer.Argument(help="Folder written by `encoder export`."),
    out_dir: Path = typer.Argument(help="Folder for the shards."),
    shard: int = typer.Option(0, help="Number of this shard, from 0."),
    of: int = typer.Option(1, help="Number of shards."),
    settings: str = typer.Option("{}", help="Settings of the section `embed`, as JSON."),
    device: str = typer.Option("", help="cpu or cuda; default: cuda where there is one."),
) -> None:
    """Encode one shard of a corpus; a finished shard is not done again."""
    from parallelsearch.config import EmbedConfig
    from parallelsearch.config_files import from_json
    from parallelsearch.retrieval.encoding.shards import embed_shard

    config = from_json(EmbedConfig, settings, "--settings")
    done = embed_shard(corpus_dir, encoder_dir, out_dir, shard, of, config.tokens_per_batch, device or None)
    typer.echo(f"{out_dir}: shard {shard} of {of} {'encoded' if done else 'was finished before'}")


def embed_manifest(
    corpus_dir: Path = typer.Argument(help="Folder written by `corpus build`."),
    encoder_dir: Path = typer.Argument(help="Folder written by `encoder export`."),
    out_dir: Path = typer.Argument(help="Folder that holds the shards."),
    of: int = typer.Option(1, help="Number of shards."),
) -> None:
    """Check all shards and write their manifest."""
    from parallelsearch.retrieval.encoding.embeddings import write_embeddings_manifest

    manifest = write_embeddings_manifest(corpus_dir, encoder_dir, out_dir, of)
    typer.echo(f"{out_dir}: {manifest['rows']} vectors in {of} shards")


@index.command("build")
def build(
    corpus_dir: Path = typer.Argument(help="Folder written by `corpus build`."),
    embeddings_dir: Path = typer.Argument(help="Folder written by `embed` and `embed-manifest`."),
    out_dir: Path = typer.Argument(help="Folder for index.faiss and manifest.json."),
    settings: str = typer.Option("{}", help="Settings of the section `index`, as JSON."),
) -> None:
    """Build a search index over embeddings and measure it against exact search."""
    from parallelsearch.config import IndexConfig
    from parallelsearch.config_files import from_json
    from parallelsearch.errors import ConfigError
    from parallelsearch.retrieval.indexes.stored_index import write_index

    config = from_json(IndexConfig, settings, "--settings")
    if config.kind in ("bm25", "hybrid"):
        raise ConfigError(
            f"index.kind is '{config.kind}', which is not built from embeddings alone; use `parallelsearch index bm25`"
            " and, for a hybrid index, `parallelsearch index fuse`."
        )
    manifest = write_index(corpus_dir, embeddings_dir, out_dir, config)
    quality = manifest["quality"]
    measured = f"recall@3 {quality['recall_at_3']}, recall@{quality['recall_at']} {quality['recall']}"
    typer.echo(f"{out_dir}: {manifest['kind']}, {manifest['ntotal']} vectors, {measured}")


@index.command("plan")
def plan(
    rows: int = typer.Option(help="Number of passages.", min=1),
    dim: int = typer.Option(help="Size of a vector.", min=1),
) -> None:
    """Say what each kind of index takes and gives: bytes, building time, searches a second and recall."""
    from parallelsearch.retrieval.indexes.calibration import calibration
    from parallelsearch.retrieval.indexes.plan import embedding_bytes, index_needs

    gib = 2**30
    typer.echo(f"{rows} vectors of {dim}; embeddings on disk: {embedding_bytes(rows, dim) / gib:.2f} GiB")
    columns = "{:10} {:>12} {:>12} {:>12} {:>10} {:>12} {:>9} {:>10}  {}"
    headings = ("build memory", "build time", "queries/s", "in batches", "recall@3", "recall@10", "default parameters")
    typer.echo(columns.format("kind", "memory, disk", *headings))
    for need in index_needs(rows, dim):
        expected = need.estimate
        parameters = ", ".join(f"{name} {value}" for name, value in need.parameters.items())
        typer.echo(
            columns.format(
                need.kind,
                f"{need.bytes / gib:.2f} GiB",
                f"{need.build_bytes / gib:.2f} GiB",
                _duration(expected.build_seconds),
                f"{expected.queries_per_second:.3g}",
                f"{expected.batch_queries_per_second:.3g}",
                f"{expected.recall_at_3:.3f}",
                f"{expected.recall_at_10:.3f}",
                f"{need.remark}" + f" ({parameters})" * bool(parameters),
            )
        )
    found = calibration()
    measured = sorted({kind["rows"] for kind in found["kinds"].values()})
    typer.echo(
        "Bytes are FAISS' own layouts. Times and recall are estimates for one core, extrapolated from"
        f" {' and '.join(map(str, measured))} vectors of {found['dim']} measured on {found['date']}"
        f" ({found['processor']}, {found['threads']} thread);"
        " queries/s: one query at a time, and 64 together. Recall is the measured one: more rows find less, a higher"
        " nprobe or efSearch finds more. `index build` measures your own."
    )


@index.command("verify")
def verify(index_dir: Path = typer.Argument(help="Folder of an index.")) -> None:
    """Compare every file of an index, its corpus and its encoder with its recorded checksum, whatever its size."""
    from parallelsearch.retrieval.indexes.verify import verify_index

    for path in verify_index(index_dir):
        typer.echo(f"{path}: as it was written")


def _duration(seconds: float) -> str:
    """'12 s', '3.4 min' or '5.6 h'."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


@retriever.command("serve")
def serve_index(
    index_dir: Path = typer.Option(..., "--index", help="Folder written by `index build`."),
    host: str = typer.Option("127.0.0.1", help="Address to listen on; 0.0.0.0 admits other machines, with the token."),
    port: int = typer.Option(8000, help="Port; 0 takes a free one.", min=0, max=65535),
    ready_file: Path | None = typer.Option(None, help="File that gets host and port once searches are answered."),
    top_k: int = typer.Option(3, help="Passages for a request without topk.", min=1),
    device: str = typer.Option("", help="cpu or cuda; default: cuda where there is one."),
    workers: int = typer.Option(1, help="Processes that answer; they share the index files in memory.", min=1),
    max_waiting: int = typer.Option(2048, help="Queries in hand at once, in each worker; more are sent away.", min=1),
    cached_queries: int = typer.Option(20_000, help="Answers that are kept; 0: none.", min=0),
    no_token: bool = typer.Option(False, "--no-token", help="Admit whoever reaches HOST from another machine."),
) -> None:
    """Answer searches over HTTP until stopped. A token is asked for when PARALLELSEARCH_RETRIEVER_TOKEN is set."""
    from parallelsearch.retrieval.serving.server import ServerSettings, serve

    settings = ServerSettings(index_dir, top_k, device or None, max_waiting, cached_queries)
    serve(
        settings, host, port, workers, ready_file, announce=lambda line: typer.echo(line, err=True), everybody=no_token
    )
