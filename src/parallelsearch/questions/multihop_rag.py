"""MultiHop-RAG (Tang and Yang, 2024): MultiHopRAG.json is an array of queries over news articles, without ids.

Copies keep the queries in one file and answers with evidence in another, by query id.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from parallelsearch.errors import DataError
from parallelsearch.questions.layouts import Details, Reader, own_layout
from parallelsearch.questions.row import Row
from parallelsearch.questions.source import as_text, read_bytes


def answers(row: Row) -> list[str]:
    return [row.text("answer")]


def details(row: Row, qid: str | None) -> Details:
    titles = [evidence.optional_text("title") for evidence in row.objects("evidence_list")]
    return Details(
        type=row.optional_text("question_type", "type"),
        hops=len(titles) or None,  # pieces of evidence; a null_query has none
        titles=tuple(title for title in titles if title),
    )


def read_ground_truth(path: Path) -> dict[str, Any]:
    """Answers and evidence by query id: {id: {"answer": .., "evidence_list": [..]}}. DataError with file and line."""
    try:
        value = json.loads(as_text(path, read_bytes(path)))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: not valid JSON ({error.msg}); fetch it again.") from None
    if not isinstance(value, dict):
        raise DataError(f"{path} holds {type(value).__name__}, not an object of rows by id; name the right file.")
    return value


def with_ground_truth(row: Row, truth: dict[str, Any], path: Path) -> Row:
    """`row` with the answer and evidence of its id; an id that `truth` lacks is a DataError."""
    qid = row.identifier("id")
    found = truth.get(qid or "")
    if not isinstance(found, dict):
        raise row.refusal(f"id '{qid}' has no answer in {path}", "name the file of answers that belongs to it")
    return Row(row.path, row.index, {**row.fields, **found}, row.line, row.in_array)


READER = Reader(
    "multihop_rag",
    details,
    (own_layout(question=("query", "question"), has_ids=False, further=(("question_type",),), answers=answers),),
    answers_apart=True,
)
