"""Choice of the next token of every row at once, repeatable for each row whatever the other rows are."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import torch

from parallelsearch.engines.engine import Sampling


def uniform_draws(sampling: Sampling, tokens: int) -> torch.Tensor:
    """The random numbers of one generation, float64 [tokens] in [0, 1), one a token, from a generator of its own."""
    generator = torch.Generator().manual_seed(secrets.randbits(63) if sampling.seed is None else sampling.seed)
    return torch.rand(tokens, generator=generator, dtype=torch.float64)


class TokenChooser:
    """Sampling settings of a batch as tensors; the rows may differ in all of them."""

    def __init__(self, samplings: Sequence[Sampling], device: torch.device) -> None:
        temperatures = [sampling.temperature for sampling in samplings]
        self._greedy = torch.tensor([value <= 0 for value in temperatures], device=device)
        self._temperature = torch.tensor([value if value > 0 else 1.0 for value in temperatures], device=device)
        self._top_p = torch.tensor([sampling.top_p for sampling in samplings], device=device, dtype=torch.float64)
        self._any_greedy = any(value <= 0 for value in temperatures)
        self._all_greedy = all(value <= 0 for value in temperatures)
        self._any_nucleus = any(s.top_p < 1 and s.temperature > 0 for s in samplings)

    def choose(self, logits: torch.Tensor, draws: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens and their log-probabilities, each [rows], from logits [rows, vocabulary] and draws [rows] in [0, 1).

        A row is sampled by inversion: the token at which its cumulative distribution first exceeds its draw. Greedy
        rows take the most likely token. Log-probabilities are those of the distribution at the row's temperature
        (1 when greedy), before the nucleus cut.
        """
        log_probs = torch.log_softmax(logits.float() / self._temperature[:, None], dim=-1)
        tokens = log_probs.argmax(dim=-1) if self._any_greedy else None
        if not self._all_greedy:
            sampled = self._invert(log_probs, draws)
            tokens = sampled if tokens is None else torch.where(self._greedy, tokens, sampled)
        assert tokens is not None
        return tokens, log_probs.gather(1, tokens[:, None]).squeeze(1)

    def _invert(self, log_probs: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        probabilities = log_probs.double().exp()
        if self._any_nucleus:
            probabilities = self._nucleus(probabilities)
        cumulative = probabilities.cumsum(dim=-1)
        targets = draws[:, None] * cumulative[:, -1:]
        return torch.searchsorted(cumulative, targets, right=True).squeeze(1).clamp_(max=log_probs.shape[-1] - 1)

    def _nucleus(self, probabilities: torch.Tensor) -> torch.Tensor:
        """Zeroes all tokens but the most likely ones, the fewest whose sum reaches top_p."""
        ordered, order = probabilities.sort(dim=-1, descending=True)
        before = ordered.cumsum(dim=-1) - ordered
        return torch.zeros_like(probabilities).scatter(1, order, ordered * (before < self._top_p[:, None]))
