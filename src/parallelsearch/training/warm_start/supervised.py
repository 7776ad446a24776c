"""One supervised optimiser step of a small model on a CPU: the passes of its batch in threads of their own.

A model this small gains nothing from a second core within one matrix product. So each pass runs on one core and the
passes of a batch run side by side; their gradients are added in the passes' order, whatever the number of cores.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from parallelsearch.machine.processor import processor_precision
from parallelsearch.training.warm_start.demonstration_batches import IGNORED, Padded

if TYPE_CHECKING:
    import torch

MUON_RATE = 20 / 3  # Muon's learning rate as a multiple of AdamW's
READING_WEIGHT = 0.5  # of an observation's mean loss, beside that of the policy's own tokens
FINAL_RATE = 0.05  # of the peak learning rate
RISING_STEPS = 50
FALLING_SHARE = 0.35  # of the steps: the last ones, in which the learning rate falls
TARGET_MULTIPLE = 256  # tokens; few different shapes of the output layer, for the same reason as LENGTH_MULTIPLE


class SupervisedSteps:
    """Optimisers of `model` and the threads that compute gradients; `optimisers` are what a checkpoint has to hold."""

    def __init__(self, model: Any, learning_rate: float, pool: ThreadPoolExecutor) -> None:
        self.model = model
        self.parameters = list(model.parameters())
        self.optimisers = _optimisers(model, learning_rate)
        self._pool = pool

    def take(self, passes: Sequence[Padded], rate: float, *, reading: bool) -> tuple[float, float]:
        """One step at `rate` of the peak learning rate; returns mean loss and accuracy on the policy's own tokens.

        With `reading`, observations are in the loss as well.
        """
        import torch

        own = sum(int((part.labels[:, 1:] != IGNORED).sum()) for part in passes)
        read = sum(int(_read(part).sum()) for part in passes) if reading else 0
        gradients = list(self._pool.map(partial(self._gradients, own_tokens=own, read_tokens=read), passes))
        total = gradients[0][2]
        for _, _, further in gradients[1:]:
            torch._foreach_add_(total, further)
        for parameter, gradient in zip(self.parameters, total, strict=True):
            parameter.grad = gradient
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate * group["peak"]
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        return sum(loss for loss, _, _ in gradients) / own, sum(right for _, right, _ in gradients) / own

    def _gradients(self, part: Padded, own_tokens: int, read_tokens: int) -> tuple[float, int, list[torch.Tensor]]:
        """Summed loss and right predictions of a pass on the policy's own tokens, and its share of the gradient."""
        import torch

        targets = part.ids[:, 1:]
        # Without its cache, which all threads would share: weights are used once in a pass anyway.
        with torch.autocast(
            "cpu", dtype=torch.bfloat16, enabled=processor_precision() == "bfloat16", cache_enabled=False
        ):
            hidden = self.model.model(input_ids=part.ids, attention_mask=part.mask).last_hidden_state[:, :-1]
            own, right = self._token_loss(hidden, targets, part.labels[:, 1:] != IGNORED)
            loss = own / own_tokens
            if read_tokens:
                loss = loss + READING_WEIGHT / read_tokens * self._token_loss(hidden, targets, _read(part))[0]
        return own.item(), right, list(torch.autograd.grad(loss, self.parameters))

    def _token_loss(
        self, hidden: torch.Tensor, targets: torch.Tensor, chosen: torch.Tensor
    ) -> tuple[torch.Tensor, int]:
        """Summed cross-entropy of the chosen targets, and how many of them are predicted right.

        `hidden` is [rows, length, width], `targets` and `chosen` [rows, length].
        """
        import torch

        places = chosen.flatten().nonzero()[:, 0]
        filled = torch.nn.functional.pad(places, (0, -len(places) % TARGET_MULTIPLE))
        logits = self.model.lm_head(hidden.flatten(0, 1)[filled]).float()[: len(places)]
        wanted = targets.flatten()[places]
        loss = torch.nn.functional.cross_entropy(logits, wanted, reduction="sum")
        return loss, int((logits.argmax(-1) == wanted).sum())


def rate_of(step: int, steps: int) -> float:
    """Share of the peak learning rate in `step` of `steps`: a linear rise, a plateau, a linear fall."""
    left = max(0.0, 1 - step / steps)
    return min(1.0, step / min(RISING_STEPS, steps)) * max(FINAL_RATE, min(1.0, left / FALLING_SHARE))


@contextmanager
def gradient_threads() -> Iterator[ThreadPoolExecutor]:
    """One thread for each core this process may use, each computing on one core only; so does the caller meanwhile."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(_cores(), initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(before)


def _cores() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, int(os.environ.get("OMP_NUM_THREADS") or cores))


def _read(part: Padded) -> torch.Tensor:
    """Tokens of a pass that are text but not the policy's own, bool [rows, longest - 1]."""
    return (part.mask[:, 1:] == 1) & (part.labels[:, 1:] == IGNORED)


def _optimisers(model: Any, learning_rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for embeddings and norms. `peak` is a group's peak learning rate.

    With AdamW alone a policy of this size needs about twice as many steps until it copies names.
    """
    import torch

    named = list(model.named_parameters())
    matrices = [parameter for name, parameter in named if parameter.ndim == 2 and ".layers." in name]
    others = [parameter for name, parameter in named if parameter.ndim != 2 or ".layers." not in name]
    optimisers: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, lr=MUON_RATE * learning_rate, momentum=0.95, nesterov=True, weight_decay=0.01),
        torch.optim.AdamW(others, lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["peak"] = group["lr"]
    return optimisers
