"""Decoding of many requests at once with a Hugging Face causal language model: rows join and leave between two tokens.

The keys and values of a finished generation are kept for a while. The next generation of the same episode continues the
same token ids, so that only the tokens of the observation have to be read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from parallelsearch.agent.engine import FinishReason, Generation, Sampling
from parallelsearch.agent.grouped_attention import use_grouped_attention
from parallelsearch.agent.key_values import BatchKeyValues, RowKeyValues
from parallelsearch.agent.prefixes import PrefixStore
from parallelsearch.agent.stopping import Stopping
from parallelsearch.agent.token_choice import TokenChooser, uniform_draws

_PREFILL_TOKENS = 8192  # padded tokens read in one forward pass
_LEAVE_SHARE = 8  # finished rows leave the batch when they are one in so many


@dataclass(slots=True)
class DecodeRequest:
    """One generation to make. `finished` is called with it, in the thread that decodes."""

    token_ids: list[int]
    max_tokens: int
    stop: tuple[str, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    finished: Callable[[Generation], None] = lambda generation: None


class _Row:
    """A request while it is decoded."""

    __slots__ = ("done", "draws", "log_probs", "request", "tokens")

    def __init__(self, request: DecodeRequest) -> None:
        self.request = request
        self.tokens: list[int] = []
        self.log_probs: list[float] = []
        self.draws = uniform_draws(request.sampling, request.max_tokens)
        self.done = False


class BatchDecoder:
    """Decodes requests together. Not thread-safe: all calls come from one thread.

    `max_rows` bounds the rows of a batch, `stored_bytes` the memory for keys and values of finished generations
    (0: none are kept). Call `forget` after the weights of the model have changed.
    """

    def __init__(self, model: Any, tokenizer: Any, *, max_rows: int = 128, stored_bytes: int = 1 << 29) -> None:
        self.model = model.eval()
        use_grouped_attention(model)
        self.tokenizer = tokenizer
        self.max_rows = max_rows
        self.device = next(model.parameters()).device
        self._stopping = Stopping(model, tokenizer, model.get_output_embeddings().weight.shape[0], self.device)
        self._prefixes = PrefixStore(stored_bytes)
        self.reset()

    @property
    def active(self) -> int:
        """Rows that are being decoded."""
        return self._unfinished

    @property
    def room(self) -> int:
        """Requests that can be admitted now."""
        return self.max_rows - self._unfinished

    def reset(self) -> None:
        """Drops all rows without finishing them, and all stored keys and values."""
        self._rows: list[_Row] = []
        self._unfinished = 0
        self._key_values = BatchKeyValues(self.device)
        self.forget()

    def forget(self) -> None:
        """Drops the keys and values of finished generations."""
        self._prefixes.clear()

    def decode(
        self, requests: Sequence[DecodeRequest], finished: Callable[[int, Generation], None] | None = None
    ) -> list[Generation]:
        """Decodes all `requests`; `finished`, if given, is called with the position of each as soon as it is done."""
        generations: list[Generation | None] = [None] * len(requests)

        def store(position: int, request: DecodeRequest) -> DecodeRequest:
            def done(generation: Generation) -> None:
                generations[position] = generation
                request.finished(generation)
                if finished:
                    finished(position, generation)

            return DecodeRequest(request.token_ids, request.max_tokens, request.stop, request.sampling, done)

        waiting = [store(position, request) for position, request in enumerate(requests)]
        while waiting or self.active:
            if waiting and self.worth_admitting(len(waiting)):
                admitted, waiting = waiting[: self.room], waiting[self.room :]
                self.admit(admitted)
            self.step()
        return [generation for generation in generations if generation is not None]

    def worth_admitting(self, waiting: int) -> bool:
        """True when the rows that would join are many enough to pay for rebuilding the batch."""
        return self.room > 0 and 4 * min(waiting, self.room) >= self.active

    @torch.inference_mode()
    def admit(self, requests: Sequence[DecodeRequest]) -> None:
        """Reads the tokens of `requests` and chooses the first token of each. At most `room` requests."""
        found = [(request, *self._prefixes.longest(request.token_ids)) for request in requests]
        found.sort(key=lambda item: len(item[0].token_ids) - item[1])
        self._leave()
        while found:
            count = _that_fit([len(request.token_ids) - known for request, known, _ in found])
            self._prefill(found[:count])
            found = found[count:]

    @torch.inference_mode()
    def step(self) -> None:
        """Reads the latest token of every row and chooses the next one."""
        if not self._unfinished:
            return
        latest = torch.tensor([[row.tokens[-1]] for row in self._rows], device=self.device)
        positions = torch.tensor(
            [[len(row.request.token_ids) + len(row.tokens) - 1] for row in self._rows], device=self.device
        )
        mask = self._key_values.append_mask(torch.ones_like(latest, dtype=torch.bool))
        logits = self._forward(latest, mask, positions, self._key_values)
        self._choose(self._rows, logits, self._key_values, self._chooser, self._candidates)
        if _LEAVE_SHARE * (len(self._rows) - self._unfinished) >= len(self._rows):
            self._leave()

    def _prefill(self, found: Sequence[tuple[DecodeRequest, int, RowKeyValues | None]]) -> None:
        rows = [_Row(request) for request, _, _ in found]
        key_values = BatchKeyValues.of_rows([stored for _, _, stored in found], self.device)
        new = [request.token_ids[known:] for request, known, _ in found]
        width = max(len(tokens) for tokens in new)
        inputs = torch.zeros(len(rows), width, dtype=torch.long)
        written = torch.zeros(len(rows), width, dtype=torch.bool)
        positions = torch.zeros(len(rows), width, dtype=torch.long)
        for index, (tokens, (_, known, _)) in enumerate(zip(new, found, strict=True)):
            inputs[index, width - len(tokens) :] = torch.tensor(tokens)
            written[index, width - len(tokens) :] = True
            positions[index, width - len(tokens) :] = torch.arange(known, known + len(tokens))
        mask = key_values.append_mask(written.to(self.device))
        logits = self._forward(inputs.to(self.device), mask, positions.to(self.device), key_values)
        chooser, candidates = self._settings(rows)
        self._unfinished += len(rows)
        self._choose(rows, logits, key_values, chooser, candidates)
        remaining = [index for index, row in enumerate(rows) if not row.done]
        if not remaining:
            return
        key_values.select(remaining)
        if self._rows:
            self._key_values.join(key_values)
        else:
            self._key_values = key_values
        self._rows += [rows[index] for index in remaining]
        self._chooser, self._candidates = self._settings(self._rows)

    def _forward(
        self, inputs: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, key_values: BatchKeyValues
    ) -> torch.Tensor:
        """Logits of the last column, [rows, vocabulary]."""
        output = self.model(
            input_ids=inputs,
            attention_mask=mask.to(torch.long),
            position_ids=positions,
            past_key_values=key_values.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1]

    def _settings(self, rows: Sequence[_Row]) -> tuple[TokenChooser, torch.Tensor]:
        chooser = TokenChooser([row.request.sampling for row in rows], self.device)
        return chooser, self._stopping.candidates([row.request.stop for row in rows])

    def _choose(
        self,
        rows: Sequence[_Row],
        logits: torch.Tensor,
        key_values: BatchKeyValues,
        chooser: TokenChooser,
        candidates: torch.Tensor,
    ) -> None:
        """Appends one token to every row that is not done, and finishes the rows that are over."""
        # A row that is done stays in the batch until rows leave; its further tokens are not recorded.
        draws = torch.stack([row.draws[0 if row.done else len(row.tokens)] for row in rows]).to(self.device)
        tokens, log_probs = chooser.choose(logits, draws)
        values = zip(rows, tokens.tolist(), log_probs.tolist(), candidates[tokens].tolist(), strict=True)
        for index, (row, token, log_prob, candidate) in enumerate(values):
            if row.done:
                continue
            row.tokens.append(token)
            row.log_probs.append(log_prob)
            reason: FinishReason | None = None
            if candidate:
                reason = self._stopping.reason(row.tokens, row.request.stop)
            if reason is None and len(row.tokens) >= row.request.max_tokens:
                reason = "length"
            if reason is not None:
                self._finish(row, reason, key_values, index)

    def _finish(self, row: _Row, reason: FinishReason, key_values: BatchKeyValues, index: int) -> None:
        row.done = True
        self._unfinished -= 1
        if reason == "stop_string" and self._prefixes.keeps_any:
            # The keys and values of the last token are not known yet: it is read with what follows it.
            self._prefixes.add(row.request.token_ids + row.tokens[:-1], key_values.row(index))
        row.request.finished(Generation(row.tokens, row.log_probs, reason))

    def _leave(self) -> None:
        """Takes the finished rows out of the batch."""
        remaining = [index for index, row in enumerate(self._rows) if not row.done]
        if len(remaining) == len(self._rows):
            return
        self._rows = [self._rows[index] for index in remaining]
        if remaining:
            self._key_values.select(remaining)
            self._chooser, self._candidates = self._settings(self._rows)
        else:
            self._key_values = BatchKeyValues(self.device)


def _that_fit(lengths: Sequence[int]) -> int:
    """How many of these ascending lengths are read in one forward pass: bounded in padded tokens and in padding."""
    count = 1
    while count < len(lengths) and (count + 1) * lengths[count] <= _PREFILL_TOKENS:
        count += 1
    return count
