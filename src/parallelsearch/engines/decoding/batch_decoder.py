"""Decoding of many requests at once with a Hugging Face causal language model: rows join and leave between two tokens.

The keys and values of a finished generation are kept for a while. The next generation of the same episode continues the
same token ids, so that only the tokens of the observation have to be read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from parallelsearch.engines.decoding.key_values import PagedKeyValues, RowKeyValues, RowPages
from parallelsearch.engines.decoding.packed_forward import PackedForward
from parallelsearch.engines.decoding.padded_forward import PaddedForward
from parallelsearch.engines.decoding.prefixes import PrefixStore
from parallelsearch.engines.decoding.token_choice import TokenChooser, uniform_draws
from parallelsearch.engines.engine import FinishReason, Generation, Sampling
from parallelsearch.engines.stopping import Stopping

_PREFILL_TOKENS = {"cpu": 2048}  # padded tokens of joining rows in one forward pass: on a CPU, what its caches hold
_PREFILL_TOKENS_ELSEWHERE = 8192


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

    __slots__ = ("draws", "log_probs", "pages", "request", "tokens")

    def __init__(self, request: DecodeRequest, pages: RowPages) -> None:
        self.request = request
        self.pages = pages
        self.tokens: list[int] = []
        self.log_probs: list[float] = []
        self.draws: list[float] = uniform_draws(request.sampling, request.max_tokens).tolist()


class BatchDecoder:
    """Decodes requests together. Not thread-safe: all calls come from one thread.

    `max_rows` bounds the rows of a batch, `stored_bytes` the memory for keys and values of finished generations
    (0: none are kept). Call `forget` after the weights of the model have changed.
    """

    def __init__(self, model: Any, tokenizer: Any, *, max_rows: int = 128, stored_bytes: int = 1 << 29) -> None:
        self.model = model.eval()
        self._forward = PackedForward(model) if PackedForward.fits(model) else PaddedForward(model)
        self.tokenizer = tokenizer
        self.max_rows = max_rows
        self.device = next(model.parameters()).device
        self._pass_tokens = _PREFILL_TOKENS.get(self.device.type, _PREFILL_TOKENS_ELSEWHERE)
        self._stopping = Stopping(model, tokenizer, model.get_output_embeddings().weight.shape[0], self.device)
        self._prefixes = PrefixStore(stored_bytes)
        self.reset()

    @property
    def active(self) -> int:
        """Requests that are being decoded, or that wait to join."""
        return len(self._rows) + len(self._joining)

    @property
    def room(self) -> int:
        """Requests that can be admitted now."""
        return self.max_rows - self.active

    def reset(self) -> None:
        """Drops all rows without finishing them, and all stored keys and values."""
        self._rows: list[_Row] = []
        self._joining: deque[tuple[DecodeRequest, int, RowKeyValues | None]] = deque()  # known tokens, keys and values
        self._key_values = PagedKeyValues(self.device)
        self._settings_of: list[_Row] = []
        self.forget()

    def forget(self) -> None:
        """Drops the keys and values of finished generations."""
        self._prefixes.clear()
        self._joining = deque((request, 0, None) for request, _, _ in self._joining)

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
            admitted, waiting = waiting[: self.room], waiting[self.room :]
            self.admit(admitted)
            self.step()
        return [generation for generation in generations if generation is not None]

    def admit(self, requests: Sequence[DecodeRequest]) -> None:
        """Lets `requests` join, at most `room`; the next steps read their tokens."""
        self._joining += [(request, *self._prefixes.longest(request.token_ids)) for request in requests]

    @torch.inference_mode()
    def step(self) -> None:
        """Chooses the next token of every row, and the first one of rows that join."""
        latest = [(row, row.tokens[-1:]) for row in self._rows]
        joining = self._join()
        if self._forward.mixes:
            self._choose([*latest, *joining])
        else:
            self._choose(joining)
            self._choose(latest)

    def _join(self) -> list[tuple[_Row, Sequence[int]]]:
        """Rows that join now, in the order of their requests, and the tokens that each has to read."""
        joining: list[tuple[_Row, Sequence[int]]] = []
        longest = 0
        while self._joining:
            request, known, stored = self._joining[0]
            longest = max(longest, len(request.token_ids) - known)
            if joining and (len(joining) + 1) * longest > self._pass_tokens:
                break
            self._joining.popleft()
            row = _Row(request, self._key_values.load(stored) if stored else RowPages([]))
            joining.append((row, request.token_ids[known:]))
        self._rows += [row for row, _ in joining]
        return joining

    def _choose(self, reading: Sequence[tuple[_Row, Sequence[int]]]) -> None:
        """Reads further tokens of rows, appends one to each, and finishes the rows that are over."""
        if not reading:
            return
        rows = [row for row, _ in reading]
        logits = self._forward(self._key_values, [row.pages for row in rows], [read for _, read in reading])
        chooser, candidates = self._settings(rows)
        draws = torch.tensor([row.draws[len(row.tokens)] for row in rows], dtype=torch.float64, device=self.device)
        tokens, log_probs = chooser.choose(logits, draws)
        chosen = zip(rows, tokens.tolist(), log_probs.tolist(), candidates[tokens].tolist(), strict=True)
        over: list[tuple[_Row, FinishReason]] = []
        for row, token, log_prob, candidate in chosen:
            row.tokens.append(token)
            row.log_probs.append(log_prob)
            reason = self._stopping.reason(row.tokens, row.request.stop) if candidate else None
            if reason is None and len(row.tokens) >= row.request.max_tokens:
                reason = "length"
            if reason is not None:
                over.append((row, reason))
        if over:
            self._finish(over)

    def _settings(self, rows: list[_Row]) -> tuple[TokenChooser, torch.Tensor]:
        """Sampling settings and stop candidates of `rows`, made anew where they are not those of the last step."""
        if rows != self._settings_of:
            self._settings_of = list(rows)
            self._chooser = TokenChooser([row.request.sampling for row in rows], self.device)
            self._candidates = self._stopping.candidates([row.request.stop for row in rows])
        return self._chooser, self._candidates

    def _finish(self, over: Sequence[tuple[_Row, FinishReason]]) -> None:
        for row, reason in over:
            if reason == "stop_string" and self._prefixes.keeps_any:
                # The keys and values of the last token are not known yet: it is read with what follows it.
                self._prefixes.add(row.request.token_ids + row.tokens[:-1], self._key_values.stored(row.pages))
        finished = {id(row) for row, _ in over}
        self._rows = [row for row in self._rows if id(row) not in finished]
        self._key_values.remove([row.pages for row, _ in over])
        for row, reason in over:
            row.request.finished(Generation(row.tokens, row.log_probs, reason))
