"""`parallelsearch retriever recall`: the share of supporting pages that each index finds."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import typer


def recall(
    questions: list[Path] = typer.Argument(help="Question files written by `questions import`."),
    index: list[Path] = typer.Option(..., "--index", help="Folder of an index; repeatable."),
    out: Path | None = typer.Option(None, help="CSV file to write."),
    limit: int = typer.Option(0, help="At most so many questions of each file; 0: all.", min=0),
    complete: bool = typer.Option(False, help="Only questions whose supporting titles the corpus has all."),
    device: str = typer.Option("", help="cpu or cuda; default: cuda where there is one."),
) -> None:
    """Search with each question itself and say which share of its supporting titles the first 3, 5, 10 passages bear.

    in_corpus is the share of supporting titles that the corpus has at all: no index can find more.
    """
    from parallelsearch.errors import DataError
    from parallelsearch.files import write_text
    from parallelsearch.questions.store import read_questions
    from parallelsearch.retrieval.opening import open_retriever
    from parallelsearch.retrieval.recall import CUTOFFS, question_recalls, recall_rows

    asked = [question for path in questions for question in read_questions(path)[: limit or None]]
    if not any(question.supporting_titles for question in asked):
        names = ", ".join(map(str, questions))
        raise DataError(f"{names}: no question has supporting titles; recall needs a data set that names them.")
    header = ["index", "dataset", "structure", "questions", "in_corpus", *(f"recall@{k}" for k in CUTOFFS)]
    table = [header]
    for folder in index:
        for row in recall_rows(question_recalls(open_retriever(folder, device or None), asked, complete_only=complete)):
            shares = [f"{share:.4f}" for share in (row.in_corpus, *row.at.values())]
            table.append([folder.name, row.dataset, row.structure, str(row.questions), *shares])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    if out:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(table)
        write_text(out, text.getvalue())
