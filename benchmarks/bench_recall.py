"""Recall of supporting titles by dense retrieval, BM25 and both: from raw files to one table, every step a command.

    python benchmarks/bench_recall.py --passages corpus.jsonl.gz --work results/recall \\
        --questions hotpotqa=hotpotqa.jsonl.gz --questions 2wikimultihopqa=2wikimultihopqa.jsonl.gz

Passages are JSON lines with title and text. Only questions are asked whose supporting titles the passages have all.
`--sample N` takes N passages, all supporting ones among them, and is quick; without it, encoding on two processor cores
takes about a minute for a thousand passages. A run that was killed goes on from the last finished shard.
OUTPUTS  WORK/recall.csv, WORK/recall.md, WORK/seconds.json; corpus, embeddings and indexes beside them
"""

from __future__ import annotations

import csv
import gzip
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import typer

from parallelsearch.files import write_json, write_text
from parallelsearch.questions.reader import Skip, read_file
from parallelsearch.questions.store import Provenance, write_questions
from parallelsearch.records import Question

SEED = 0
PASSAGES_PER_SHARD = 4000
NAMES = {"dense": "dense (E5)", "bm25": "BM25", "hybrid": "both, fused", "reranked": "both, fused, reranked"}


def main(
    passages: Path = typer.Option(..., help="JSON lines with title and text, gzip or not."),
    questions: list[str] = typer.Option(..., help="DATASET=FILE; repeatable."),
    work: Path = typer.Option(..., help="Folder of everything that is made."),
    sample: int = typer.Option(0, help="So many passages, the supporting ones among them; 0: all."),
    limit: int = typer.Option(0, help="At most so many questions of each data set, drawn at random; 0: all."),
    encoder: str = typer.Option("multilingual-e5-small", help="Declaration in config/encoders/."),
    reranker: str = typer.Option("", help="Declaration in config/rerankers/; none: no such row."),
) -> None:
    """Makes the table."""
    titles = [row["title"] for row in _rows(passages)]
    asked = {name: _questions(name, Path(file), set(titles), limit) for name, file in map(_pair, questions)}
    files = []
    for name, chosen in asked.items():
        files.append(work / "questions" / f"{name}.parquet")
        write_questions(files[-1], chosen, Provenance(reader=name))
    raw = _sampled(passages, titles, asked, sample, work / "passages.jsonl") if sample else passages
    steps = Steps(work)
    steps.run("corpus build", "corpus", "build", "geoworld", raw, work / "corpus")
    steps.run("encoder export", "encoder", "export", encoder, work / "encoder")
    shards = max((sample or len(titles)) // PASSAGES_PER_SHARD, 1)
    places = [work / "corpus", work / "encoder", work / "embeddings"]
    for shard in range(shards):
        steps.run("embed", "embed", *places, "--shard", shard, "--of", shards)
    steps.run("embed-manifest", "embed-manifest", *places, "--of", shards)
    steps.run("index build", "index", "build", work / "corpus", work / "embeddings", work / "dense")
    steps.run("index bm25", "index", "bm25", work / "corpus", work / "bm25")
    steps.run("index fuse", "index", "fuse", work / "dense", work / "bm25", work / "hybrid")
    kinds = ["dense", "bm25", "hybrid"]
    if reranker:
        steps.run("reranker export", "reranker", "export", reranker, work / "reranker")
        steps.run("index rerank", "index", "rerank", work / "hybrid", work / "reranker", work / "reranked")
        kinds.append("reranked")
    indexes = [word for kind in kinds for word in ("--index", work / kind)]
    steps.run("retriever recall", "retriever", "recall", *files, *indexes, "--out", work / "recall.csv")
    write_text(work / "recall.md", _table(work / "recall.csv"))
    typer.echo((work / "recall.md").read_text())


class Steps:
    """Runs commands of the program and writes down how many seconds each kind of step took in this run."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.seconds: dict[str, float] = {}

    def run(self, step: str, *arguments: object) -> None:
        begun = time.monotonic()
        subprocess.run([sys.executable, "-m", "parallelsearch.cli", *map(str, arguments)], check=True)
        self.seconds[step] = round(self.seconds.get(step, 0.0) + time.monotonic() - begun, 1)
        write_json(self.work / "seconds.json", self.seconds)


def _pair(text: str) -> tuple[str, str]:
    name, equals, file = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"'{text}' is not DATASET=FILE")
    return name, file


def _rows(passages: Path) -> Iterator[dict[str, str]]:
    opened = gzip.open if passages.suffix == ".gz" else open
    with opened(passages, "rt", encoding="utf-8") as stream:
        yield from map(json.loads, stream)


def _questions(dataset: str, file: Path, titles: set[str], limit: int) -> list[Question]:
    """The questions whose supporting titles are all there; at most `limit` of them, drawn at random, in file order."""
    read = read_file(dataset, file, skip=[Skip.UNTYPED]).questions
    whole = [q for q in read if q.supporting_titles and titles.issuperset(q.supporting_titles)]
    drawn = sorted(random.Random(SEED).sample(range(len(whole)), min(limit or len(whole), len(whole))))
    typer.echo(f"{dataset}: {len(read)} questions, {len(whole)} with all supporting pages, {len(drawn)} asked")
    return [whole[number] for number in drawn]


def _sampled(passages: Path, titles: list[str], asked: dict[str, list[Question]], size: int, out: Path) -> Path:
    """Every passage of a supporting page, and others drawn at random up to `size`, in file order."""
    gold = {title for chosen in asked.values() for question in chosen for title in question.supporting_titles}
    kept = {number for number, title in enumerate(titles) if title in gold}
    others = [number for number in range(len(titles)) if number not in kept]
    kept.update(random.Random(SEED).sample(others, max(min(size - len(kept), len(others)), 0)))
    lines = [json.dumps(row, ensure_ascii=False) for number, row in enumerate(_rows(passages)) if number in kept]
    write_text(out, "\n".join(lines) + "\n")
    return out


def _table(file: Path) -> str:
    """The figures as Markdown: a row for each data set, structure and index."""
    with file.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    cuts = [name for name in rows[0] if name.startswith("recall@")]
    lines = [f"| data set | structure | questions | index | {' | '.join(cuts)} |", "|---" * (4 + len(cuts)) + "|"]
    for key in dict.fromkeys((row["dataset"], row["structure"], row["questions"]) for row in rows):
        for row in rows:
            if (row["dataset"], row["structure"], row["questions"]) == key:
                shares = " | ".join(f"{float(row[name]):.3f}" for name in cuts)
                lines.append(f"| {' | '.join(key)} | {NAMES[row['index']]} | {shares} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    typer.run(main)
