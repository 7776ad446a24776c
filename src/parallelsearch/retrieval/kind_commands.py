"""`parallelsearch index bm25`, `index fuse`, `index rerank` and `reranker export`: indexes beside the dense one."""

from __future__ import annotations

from pathlib import Path

import typer

reranker = typer.Typer(help="Rerankers.", no_args_is_help=True)


def add_to(index: typer.Typer) -> None:
    """Adds the kinds of index to `parallelsearch index`."""
    index.command("bm25")(bm25)
    index.command("fuse")(fuse)
    index.command("rerank")(rerank)


@reranker.callback()
def _reranker() -> None:
    """Rerankers."""


def bm25(
    corpus_dir: Path = typer.Argument(help="Folder written by `corpus build`."),
    out_dir: Path = typer.Argument(help="Folder for bm25/ and manifest.json."),
    settings: str = typer.Option("{}", help="Settings of the section `index.bm25`, as JSON."),
) -> None:
    """Build a BM25 index over a corpus; needs no embeddings."""
    from parallelsearch.config import Bm25Config
    from parallelsearch.config_files import from_json
    from parallelsearch.retrieval.indexes.bm25 import write_bm25

    manifest = write_bm25(corpus_dir, out_dir, from_json(Bm25Config, settings, "--settings"))
    itself, words = (manifest["quality"][share] for share in ("self_retrieval", "word_retrieval"))
    typer.echo(
        f"{out_dir}: {manifest['ntotal']} passages, {manifest['vocabulary']} words, self-retrieval {itself}, words that"
        f" find a passage {words}"
    )


def fuse(
    first: Path = typer.Argument(help="Folder of an index."),
    second: Path = typer.Argument(help="Folder of another index of the same corpus."),
    out_dir: Path = typer.Argument(help="Folder for manifest.json."),
    settings: str = typer.Option("{}", help="`candidates` and `k` of the section `index.hybrid`, as JSON."),
) -> None:
    """Join two indexes (such as a dense one and BM25) by reciprocal rank fusion."""
    from parallelsearch.config import HybridConfig
    from parallelsearch.config_files import from_json
    from parallelsearch.retrieval.indexes.composed import write_hybrid

    manifest = write_hybrid([first, second], out_dir, from_json(HybridConfig, settings, "--settings"))
    kinds = " and ".join(part["kind"] for part in manifest["parts"])
    typer.echo(f"{out_dir}: {kinds}, {manifest['candidates']} candidates of each, k {manifest['k']}")


def rerank(
    index_dir: Path = typer.Argument(help="Folder of the index whose hits are put in a new order."),
    reranker_dir: Path = typer.Argument(help="Folder written by `reranker export`."),
    out_dir: Path = typer.Argument(help="Folder for manifest.json."),
    candidates: int = typer.Option(50, help="Hits of the index that are scored for each query.", min=1),
) -> None:
    """Put a cross-encoder over an index."""
    from parallelsearch.retrieval.indexes.composed import write_reranked

    manifest = write_reranked(index_dir, reranker_dir, out_dir, candidates)
    named = f"{manifest['index']['kind']} with {manifest['reranker']['name']}"
    typer.echo(f"{out_dir}: {named}, {candidates} candidates")


@reranker.command("export")
def export(
    name: str = typer.Argument(help="Name of a declaration in config/rerankers/."),
    out_dir: Path = typer.Argument(help="Folder for weights, tokenizer and manifest.json."),
) -> None:
    """Write the declared cross-encoder to OUT_DIR in Hugging Face layout."""
    from parallelsearch.retrieval.reranking.declaration import export_reranker

    manifest = export_reranker(name, out_dir)
    typer.echo(f"{out_dir}: {manifest['model']}, at most {manifest['max_tokens']} tokens")
