"""The request and reply of `/retrieve`, as Search-R1's retrieval server and its clients speak it.

With scores a hit is {"document": {"id", "contents"}, "score"}, without it is the document alone; `contents` is
written as in the published wiki-18 (see `join_contents`). Documents of other servers may also have `title` and `text`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from parallelsearch.corpus.sources import join_contents, split_contents
from parallelsearch.errors import RetrieverError
from parallelsearch.records import Hit, Passage

TOKEN_VARIABLE = "PARALLELSEARCH_RETRIEVER_TOKEN"
DEFAULT_TOP_K = 3
MAX_TOP_K = 1000
MAX_QUERIES = 16_384  # a batch of a trainer: all trajectories of a turn, all their sub-queries
MAX_PASSAGES = 512_000  # of a reply: queries times topk
MAX_QUERY_CHARACTERS = 10_000


class RetrieveRequest(BaseModel):
    """Body of POST /retrieve."""

    queries: list[Annotated[str, Field(max_length=MAX_QUERY_CHARACTERS)]] = Field(
        max_length=MAX_QUERIES, description="One search each."
    )
    topk: int | None = Field(None, ge=1, le=MAX_TOP_K, description="Passages for each query; default: the server's.")
    return_scores: bool = Field(False, description="Whether each hit comes with its score.")


def reply_body(results: list[list[Hit]], return_scores: bool) -> dict[str, Any]:
    """The reply to one request: one list of hits for each query, best first."""
    return {"result": [[_hit_body(hit, return_scores) for hit in hits] for hits in results]}


def read_reply(body: Any, queries: int, place: str) -> list[list[Hit]]:
    """Hits out of a reply with scores; RetrieverError says what of it is not as agreed."""
    results = body.get("result") if isinstance(body, dict) else None
    if not isinstance(results, list):
        raise RetrieverError(f"{place} replied without a list 'result'; check that the URL is a /retrieve server.")
    if len(results) != queries:
        raise RetrieverError(f"{place} replied to {len(results)} of {queries} queries; check the server's log.")
    return [[_read_hit(hit, place) for hit in hits] for hits in results]


def _hit_body(hit: Hit, return_scores: bool) -> dict[str, Any]:
    passage = hit.passage
    document = {"id": str(passage.id), "contents": join_contents(passage.title, passage.text)}
    return {"document": document, "score": hit.score} if return_scores else document


def _read_hit(hit: Any, place: str) -> Hit:
    try:
        document, score = hit["document"], float(hit["score"])
        number = int(document["id"])
        if "title" in document and "text" in document:
            title, text = document["title"], document["text"]
        else:
            title, text = split_contents(document["contents"])
    except (KeyError, TypeError, ValueError) as error:
        raise RetrieverError(
            f"{place} replied with the hit {str(hit)[:120]!r}, which is not a document with id, contents and score"
            f" ({type(error).__name__}: {error}); check the server's version."
        ) from None
    return Hit(Passage(number, title, text), score)
