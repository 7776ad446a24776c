"""Texts -> L2-normalised vectors, as the encoder's own manifest prescribes (prefixes, pooling, length)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parallelsearch.errors import MismatchError
from parallelsearch.files import read_json
from parallelsearch.records import Passage
from parallelsearch.retrieval.encoding.export import TOKENIZER, exported_manifest
from parallelsearch.retrieval.encoding.openvino_model import OpenVinoModel
from parallelsearch.retrieval.encoding.packing import pack
from parallelsearch.retrieval.encoding.torch_model import TorchModel
from parallelsearch.retrieval.latest import LatestAnswers

TOKENS_PER_BATCH = 2048  # fits a processor core's caches; larger batches were a third slower there
EXPORT_AGAIN = "rerun `parallelsearch encoder export`"
ROBERTA_MODEL_TYPES = ("roberta", "xlm-roberta")
SHORTEST = 1e-12  # of a vector that is divided by its length


def passage_text(passage: Passage) -> str:
    """What is encoded of a passage (before the prefix): title, line break, text, as E5 and Search-R1 do."""
    return f"{passage.title}\n{passage.text}"


class Encoder:
    """An exported encoder. Thread-safe; queries that were encoded before come out of a cache.

    In bfloat16 the vector of a text depends a little on the size of its batch (cosine above 0.9999).
    """

    def __init__(self, folder: Path, manifest: dict[str, Any], model: OpenVinoModel | TorchModel, device: str) -> None:
        from tokenizers import Tokenizer

        self.folder = folder
        self.manifest = manifest
        self.dim: int = manifest["dim"]
        self.max_tokens: int = manifest["max_tokens"]
        self.device = device
        self.precision = model.precision
        self._model = model
        config = read_json(folder / "config.json")
        self._pad: int = config.get("pad_token_id") or 0
        # RoBERTa's positions begin behind the number of its padding token.
        self._first_position = self._pad + 1 if config["model_type"] in ROBERTA_MODEL_TYPES else 0
        self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self.max_tokens)
        self.latest: LatestAnswers[str, np.ndarray] = LatestAnswers()

    @classmethod
    def open(cls, folder: Path, device: str | None = None) -> Encoder:
        """Loads the folder that `encoder export` wrote, on `device` (default: the GPU if there is one).

        In the fastest precision that the device computes in; see OpenVinoModel (processor) and TorchModel (GPU).
        """
        folder = Path(folder)
        manifest = exported_manifest(folder, EXPORT_AGAIN)
        device = device or default_device()
        model: OpenVinoModel | TorchModel
        if device == "cpu":
            model = OpenVinoModel(folder, manifest["pooling"])
        else:
            model = TorchModel(folder, manifest["pooling"], device)
        if model.dim != manifest["dim"]:
            raise MismatchError(
                f"{folder} has vectors of {model.dim}, but its manifest says {manifest['dim']};"
                f" correct dim in the declaration and {EXPORT_AGAIN}."
            )
        return cls(folder, manifest, model, device)

    def encode_passages(
        self,
        passages: Sequence[Passage],
        tokens_per_batch: int = TOKENS_PER_BATCH,
        progress: Callable[[int], None] | None = None,
    ) -> np.ndarray:
        """float32 [len(passages), dim]; `progress` is called with the number of passages just finished."""
        return self.encode_tokens(self.tokenise_passages(passages), tokens_per_batch, progress)

    def tokenise_passages(self, passages: Sequence[Passage]) -> list[list[int]]:
        """Token ids of each passage with its prefix, at most `max_tokens` of them."""
        prefix = self.manifest["passage_prefix"]
        return self._tokenise([prefix + passage_text(p) for p in passages])

    def encode_queries(self, queries: Sequence[str], tokens_per_batch: int = TOKENS_PER_BATCH) -> np.ndarray:
        """float32 [len(queries), dim]. The most recent different queries are kept (`latest`)."""
        prefix = self.manifest["query_prefix"]
        found = self.latest.known(queries)
        new = [query for query in dict.fromkeys(queries) if query not in found]
        if new:
            tokens = self._tokenise([prefix + query for query in new])
            found.update(zip(new, self.encode_tokens(tokens, tokens_per_batch), strict=True))
            self.latest.keep({query: found[query] for query in new})
        return np.stack([found[query] for query in queries]) if queries else np.zeros((0, self.dim), np.float32)

    def encode_tokens(
        self,
        tokens: Sequence[Sequence[int]],
        tokens_per_batch: int = TOKENS_PER_BATCH,
        progress: Callable[[int], None] | None = None,
    ) -> np.ndarray:
        """float32 [len(tokens), dim] of tokenised texts; `progress` as for `encode_passages`."""
        places: dict[tuple[int, ...], list[int]] = {}
        for place, ids in enumerate(tokens):
            places.setdefault(tuple(ids), []).append(place)  # equal texts are encoded once and get equal vectors
        vectors = np.zeros((len(tokens), self.dim), dtype=np.float32)
        different, owners = list(places), list(places.values())
        for batch in length_sorted_batches([len(ids) for ids in different], tokens_per_batch):
            for row, vector in zip(batch, self._forward([different[row] for row in batch]), strict=True):
                vectors[owners[row]] = vector
            if progress:
                progress(sum(len(owners[row]) for row in batch))
        return vectors

    def _tokenise(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts)]

    def _forward(self, texts: list[tuple[int, ...]]) -> np.ndarray:
        vectors = self._model.vectors(pack(texts, self._pad, self._first_position), len(texts))
        if self.manifest["normalize"]:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), SHORTEST)
        return vectors


def default_device() -> str:
    """cuda where PyTorch finds a GPU, else cpu."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def length_sorted_batches(lengths: Sequence[int], tokens_per_batch: int) -> list[list[int]]:
    """Row numbers in batches of similar length; rows x longest row <= `tokens_per_batch`, or a single row."""
    batches: list[list[int]] = []
    width = 0
    for row in sorted(range(len(lengths)), key=lambda n: (-lengths[n], n)):
        if not batches or (len(batches[-1]) + 1) * width > tokens_per_batch:
            batches.append([])
            width = lengths[row]
        batches[-1].append(row)
    return batches
