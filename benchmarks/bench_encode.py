"""Passages a second of this encoder against the plain way, on the same passages with the same weights.

    python benchmarks/bench_encode.py --corpus results-bench/corpus --encoder results-bench/encoder

The plain way: float32, batches of 64 passages in the order of the corpus, each padded to its longest. The two sides
take turns on one part of the passages after another; the ratio is the median over the parts. Vectors are compared.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np
import torch
import typer
from transformers import AutoModel, AutoTokenizer

from parallelsearch.corpus.passages import Corpus
from parallelsearch.files import MANIFEST, read_json
from parallelsearch.records import Passage
from parallelsearch.retrieval.encoding.encoder import Encoder, passage_text

PLAIN_BATCH = 64


def main(
    corpus: Path = typer.Option(..., help="Folder written by `corpus build`."),
    encoder: Path = typer.Option(..., help="Folder written by `encoder export`."),
    count: int = typer.Option(2000, help="Passages, the first ones of the corpus."),
    parts: int = typer.Option(5, help="Parts in which the sides take turns."),
    tokens_per_batch: int = typer.Option(2048, help="Size of this encoder's batches in tokens."),
) -> None:
    """Prints passages a second of both sides, their ratio and the cosines of their vectors."""
    (passages,) = Corpus(corpus).rows(0, count, count)
    ours, plain = Encoder.open(encoder), PlainEncoder(encoder)
    for side in (ours.encode_passages, plain.encode_passages):
        side(passages[:8])  # the first call of a model is slow
    sides = {"plain": plain.encode_passages, "ours": lambda part: ours.encode_passages(part, tokens_per_batch)}
    rates: dict[str, list[float]] = {name: [] for name in sides}
    cosines = []
    for number in range(parts):
        part = passages[number * count // parts : (number + 1) * count // parts]
        vectors = {}
        for name, encode in sides.items():
            begun = time.perf_counter()
            vectors[name] = encode(part)
            rates[name].append(len(part) / (time.perf_counter() - begun))
        cosines.extend((vectors["plain"] * vectors["ours"]).sum(1))
        typer.echo(f"part {number + 1}: plain {rates['plain'][-1]:.1f}, ours {rates['ours'][-1]:.1f} passages/s")
    ratio = statistics.median(o / p for o, p in zip(rates["ours"], rates["plain"], strict=True))
    typer.echo(f"{len(passages)} passages, {torch.get_num_threads()} threads, ours in {ours.precision}")
    typer.echo("| side | passages/s (median) |\n|---|---:|")
    for name, values in rates.items():
        typer.echo(f"| {name} | {statistics.median(values):.1f} |")
    typer.echo(f"ratio {ratio:.2f}; cosine at least {min(cosines):.5f}, mean {np.mean(cosines):.5f}")


class PlainEncoder:
    """The model as a first script would call it."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder, dtype=torch.float32, add_pooling_layer=False).eval()
        self.manifest = read_json(folder / MANIFEST)

    def encode_passages(self, passages: list[Passage]) -> np.ndarray:
        """float32 [len(passages), dim], L2-normalised means of the token vectors."""
        prefix = self.manifest["passage_prefix"]
        return self.encode([prefix + passage_text(passage) for passage in passages])

    def encode(self, texts: list[str]) -> np.ndarray:
        """float32 [len(texts), dim] of texts that have their prefix."""
        rows = []
        for start in range(0, len(texts), PLAIN_BATCH):
            batch = self.tokenizer(
                texts[start : start + PLAIN_BATCH],
                max_length=self.manifest["max_tokens"],
                padding=True,
                truncation=True,
                return_tensors="pt",
            )
            with torch.no_grad():
                hidden = self.model(**{key: batch[key] for key in ("input_ids", "attention_mask")}).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1)
            mean = (hidden * mask).sum(1) / mask.sum(1)
            rows.append(torch.nn.functional.normalize(mean, dim=-1).numpy())
        return np.concatenate(rows)


if __name__ == "__main__":
    typer.run(main)
