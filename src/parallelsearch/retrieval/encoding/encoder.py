"""Texts -> L2-normalised vectors, as the encoder's own manifest prescribes (prefixes, pooling, length)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parallelsearch.errors import MismatchError
from parallelsearch.records import Passage
from parallelsearch.retrieval.encoding.declaration import Pooling
from parallelsearch.retrieval.encoding.export import TOKENIZER, exported_manifest
from parallelsearch.retrieval.encoding.packing import pack
from parallelsearch.retrieval.latest import LatestAnswers

if TYPE_CHECKING:
    import torch

TOKENS_PER_BATCH = 2048  # fits a processor core's caches; larger batches were a third slower there
EXPORT_AGAIN = "rerun `parallelsearch encoder export`"
ROBERTA_MODEL_TYPES = ("roberta", "xlm-roberta")
POOLED_MODEL_TYPES = ("bert", *ROBERTA_MODEL_TYPES)  # their extra dense layer is not part of a sentence vector
BF16_FLAGS = ("amx_bf16", "avx512_bf16")


def passage_text(passage: Passage) -> str:
    """What is encoded of a passage (before the prefix): title, line break, text, as E5 and Search-R1 do."""
    return f"{passage.title}\n{passage.text}"


class Encoder:
    """An exported encoder. Thread-safe; queries that were encoded before come out of a cache.

    In bfloat16 the vector of a text depends a little on the size of its batch (cosine above 0.9999).
    """

    def __init__(self, folder: Path, manifest: dict[str, Any], model: torch.nn.Module, device: str) -> None:
        from tokenizers import Tokenizer

        self.folder = folder
        self.manifest = manifest
        self.dim: int = manifest["dim"]
        self.max_tokens: int = manifest["max_tokens"]
        self.device = device
        self.precision = str(next(model.parameters()).dtype).removeprefix("torch.")
        self._model = model
        config: Any = model.config
        self._pad: int = getattr(config, "pad_token_id", None) or 0
        # RoBERTa's positions begin behind the number of its padding token.
        self._first_position = self._pad + 1 if config.model_type in ROBERTA_MODEL_TYPES else 0
        self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self.max_tokens)
        self.latest: LatestAnswers[str, np.ndarray] = LatestAnswers()

    @classmethod
    def open(cls, folder: Path, device: str | None = None) -> Encoder:
        """Loads the folder that `encoder export` wrote, on `device` (default: the GPU if there is one).

        In the fastest precision that the device computes in (see `fastest_precision`).
        """
        import torch
        from transformers import AutoConfig, AutoModel
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        folder = Path(folder)
        manifest = exported_manifest(folder, EXPORT_AGAIN)
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        dtype = getattr(torch, fastest_precision(device))
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        head: dict[str, Any] = {"add_pooling_layer": False} if config.model_type in POOLED_MODEL_TYPES else {}
        model = AutoModel.from_pretrained(folder, dtype=dtype, local_files_only=True, **head).to(device).eval()
        if model.config.hidden_size != manifest["dim"]:
            raise MismatchError(
                f"{folder} has vectors of {model.config.hidden_size}, but its manifest says {manifest['dim']};"
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
        import torch

        packed = pack(texts, self._pad)
        owner = torch.from_numpy(packed.texts).to(self.device)
        positions = torch.from_numpy(packed.positions).to(self.device)
        with torch.inference_mode():
            hidden = self._model(
                input_ids=torch.from_numpy(packed.ids).to(self.device),
                attention_mask=(owner.unsqueeze(2) == owner.unsqueeze(1)).unsqueeze(1),  # padding sees padding
                position_ids=positions + self._first_position,
            ).last_hidden_state
            pooled = _pool(hidden, owner, positions, len(texts), self.manifest["pooling"])
            if self.manifest["normalize"]:
                pooled = torch.nn.functional.normalize(pooled, dim=-1)
        return pooled.cpu().numpy()


def _pool(
    hidden: torch.Tensor, owner: torch.Tensor, positions: torch.Tensor, texts: int, pooling: Pooling
) -> torch.Tensor:
    """float32 [texts, dim] of the token vectors `hidden` [rows, width, dim], token by token owned by a text (or -1)."""
    import torch

    chosen = owner >= 0
    if pooling == "cls":
        chosen &= positions == 0
    owners, tokens = owner[chosen], hidden[chosen].float()
    total = torch.zeros((texts, hidden.shape[-1]), device=hidden.device).index_add_(0, owners, tokens)
    return total / torch.bincount(owners, minlength=texts).unsqueeze(1)


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


def fastest_precision(device: str) -> str:
    """bfloat16 where the device has instructions for it, else float16 on a GPU and float32 on a processor."""
    import torch

    if device != "cpu":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:  # not Linux
        flags = ""
    wanted = any(flag in flags for flag in BF16_FLAGS) and not os.environ.get("PARALLELSEARCH_FLOAT32")
    return "bfloat16" if wanted else "float32"
