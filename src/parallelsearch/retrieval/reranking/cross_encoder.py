"""Scores of (query, passage) pairs by a model that reads both together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parallelsearch.model_folder import SAFE, SAFE_TOKENIZER
from parallelsearch.retrieval.encoding.encoder import TOKENS_PER_BATCH, length_sorted_batches
from parallelsearch.retrieval.encoding.export import exported_manifest

EXPORT_AGAIN = "rerun `parallelsearch reranker export`"

Pair = tuple[str, str]


class CrossEncoder:
    """An exported cross-encoder, in float32: the order of near ties should not depend on who else asks."""

    def __init__(self, manifest: dict[str, Any], model: Any, tokenizer: Any, device: str) -> None:
        self.manifest = manifest
        self.device = device
        self._model = model
        self._tokenizer = tokenizer

    @classmethod
    def open(cls, folder: Path, device: str | None = None) -> CrossEncoder:
        """Loads the folder that `reranker export` wrote, on `device` (default: the GPU if there is one).

        Raises DataError for a missing file, MismatchError for a changed one.
        """
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        folder = Path(folder)
        manifest = exported_manifest(folder, EXPORT_AGAIN)
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        local: dict[str, Any] = {"local_files_only": True}
        model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32, **local, **SAFE)
        return cls(
            manifest, model.to(device).eval(), AutoTokenizer.from_pretrained(folder, **local, **SAFE_TOKENIZER), device
        )

    def scores(self, pairs: Sequence[Pair], tokens_per_batch: int = TOKENS_PER_BATCH) -> list[float]:
        """The model's logit of each (query, passage); equal pairs are read once and score the same.

        The longer of query and passage is cut where both together are longer than `max_tokens`.
        """
        import torch

        different = list(dict.fromkeys(pairs))
        if not different:
            return []
        tokens = self._tokenizer(
            [query for query, _ in different],
            [passage for _, passage in different],
            truncation="longest_first",
            max_length=self.manifest["max_tokens"],
        )
        logits: dict[Pair, float] = {}
        lengths = [len(ids) for ids in tokens["input_ids"]]
        for batch in length_sorted_batches(lengths, tokens_per_batch):
            rows = {name: [values[row] for row in batch] for name, values in tokens.items()}
            padded = self._tokenizer.pad(rows, return_tensors="pt").to(self.device)
            with torch.inference_mode():
                found = self._model(**padded).logits[:, 0].float().tolist()
            logits.update(zip([different[row] for row in batch], found, strict=True))
        return [logits[pair] for pair in pairs]
