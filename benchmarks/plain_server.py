"""The other side of bench_server.py: a server that handles one request at a time, as published retrieval servers do.

It encodes the queries of one request in float32, searches a flat index, and looks the passages up one by one.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import faiss
import typer
import uvicorn
from bench_encode import PlainEncoder
from fastapi import FastAPI
from pydantic import BaseModel

from parallelsearch.corpus.passages import Corpus
from parallelsearch.corpus.sources import join_contents


class Request(BaseModel):
    """Body of POST /retrieve."""

    queries: list[str]
    topk: int = 3
    return_scores: bool = False


def main(
    index: Path = typer.Option(..., help="Folder of a flat index."),
    encoder: Path = typer.Option(..., help="Folder written by `encoder export`."),
    corpus: Path = typer.Option(..., help="Folder written by `corpus build`."),
    port: int = typer.Option(..., help="Port on 127.0.0.1."),
) -> None:
    """Serves until it is ended."""
    model, flat, passages = PlainEncoder(encoder), faiss.read_index(str(index / "index.faiss")), Corpus(corpus)
    prefix = model.manifest["query_prefix"]
    one_at_a_time = threading.Lock()
    app = FastAPI()

    @app.get("/ready")
    def ready() -> dict[str, str]:
        return {"status": "ready"}

    @app.post("/retrieve")
    def retrieve(request: Request) -> dict[str, Any]:
        with one_at_a_time:
            scores, ids = flat.search(model.encode([prefix + query for query in request.queries]), request.topk)
            result = []
            for row_scores, row_ids in zip(scores, ids, strict=True):
                documents = []
                for score, number in zip(row_scores, row_ids, strict=True):
                    passage = passages[int(number)]
                    document = {"id": str(number), "contents": join_contents(passage.title, passage.text)}
                    documents.append({"document": document, "score": float(score)})
                result.append(documents)
            return {"result": result}

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    typer.run(main)
