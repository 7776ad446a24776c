"""Imported by veRL in each process of a job (VERL_USE_EXTERNAL_MODULES): writes down what reaches the two losses.

Every call of the actor's and the critic's loss leaves one file in the folder LOSS_PROBE. With LOSS_PROBE_FAILING=N
every N-th search of an agent-loop process fails, so that the job has failed episodes to keep out of its losses.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import torch
from verl.utils.metric import Metric
from verl.workers.utils import losses
from verl.workers.utils.padding import no_padding_2_padding

from parallelsearch.errors import RetrieverError
from parallelsearch.retrieval import opening

FOLDER = Path(os.environ["LOSS_PROBE"])
FAILING = int(os.environ.get("LOSS_PROBE_FAILING", "0"))
FIELDS = ("prompts", "responses", "response_mask", "old_log_probs", "advantages", "values", "returns", "uid")
_calls, _searches = count(), count(1)


def _rows(value: Any) -> Any:
    """A nested tensor as a list of its rows; anything else as it is."""
    if isinstance(value, torch.Tensor):
        return [row.detach().clone() for row in (value.unbind() if value.is_nested else value)]
    return value.tolist() if hasattr(value, "tolist") else value


def _probed(name: str, predicted: str, loss: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(loss)
    def with_dump(config: Any, model_output: Any, data: Any, dp_group: Any = None) -> Any:
        value, metrics = loss(config=config, model_output=model_output, data=data, dp_group=dp_group)
        seen = {field: _rows(data[field]) for field in FIELDS if field in data.keys()}  # noqa: SIM118
        seen["predicted"] = no_padding_2_padding(model_output[predicted], data).detach()  # [rows, longest response]
        seen["batch_num_tokens"] = float(data["batch_num_tokens"])
        seen["loss"] = float(value.detach())
        seen["metrics"] = {
            key: float(entry.aggregate() if isinstance(entry, Metric) else entry) for key, entry in metrics.items()
        }
        torch.save(seen, FOLDER / f"{name}-{next(_calls):05d}-{os.getpid()}.pt")
        return value, metrics

    return with_dump


class _FailingRetriever:
    def __init__(self, retriever: Any) -> None:
        self._retriever = retriever

    async def search(self, queries: Any, k: int) -> Any:
        if next(_searches) % FAILING == 0:
            raise RetrieverError("the retriever was made to fail by a test")
        return await self._retriever.search(queries, k)


def _open_failing(folder: Path, *arguments: Any, **named: Any) -> Any:
    return _FailingRetriever(_open(folder, *arguments, **named))


losses.ppo_loss = _probed("actor", "log_probs", losses.ppo_loss)
losses.value_loss = _probed("critic", "values", losses.value_loss)
if FAILING:
    _open = opening.open_retriever
    opening.open_retriever = _open_failing
