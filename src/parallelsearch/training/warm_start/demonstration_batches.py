"""Batches of demonstrations as token ids, labels and masks: what one step of the warm start reads.

A small model has to learn to copy names first, and it learns that from short texts that repeat them: the first part of
the steps has questions of a single look-up only. Comparing two facts, and finding them in one observation, is hard to
learn from the few tokens that it takes in a demonstration, so each batch has exercises of these steps alone beside its
demonstrations.

Every batch is made from the seed and the step alone, so that a killed run goes on from its last checkpoint with the
batches it would have seen.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING

from parallelsearch.agent.prompts import prompt_token_ids
from parallelsearch.agent.tags import TAG_SETS
from parallelsearch.config import AgentConfig, WarmStartConfig
from parallelsearch.geoworld.facts import World
from parallelsearch.geoworld.questions import TYPE_SHARES
from parallelsearch.training.warm_start.demonstrations import (
    Demonstration,
    comparing_exercises,
    demonstrations,
    reading_exercises,
)

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

SINGLE_SHARE = 0.25  # of the steps: the first ones, with questions of a single look-up
COMPARING_EXERCISES = 0.75  # for each demonstration
ROWS_A_PASS = 16  # a batch is read in passes of at most so many rows of like length
LONGEST_TO_SHORTEST = 1.3  # in a pass, so that little is padded
LENGTH_MULTIPLE = 16  # tokens; few different shapes, since a CPU's matrix kernels are prepared anew for each
IGNORED = -100  # label of a token outside the loss

Row = tuple[list[int], list[int]]  # token ids and labels of one demonstration


@dataclass(frozen=True, slots=True)
class Padded:
    """Rows of one pass, each tensor [rows, longest]; `labels` hold IGNORED outside the loss, `mask` 0 on padding."""

    ids: torch.Tensor
    labels: torch.Tensor
    mask: torch.Tensor


def batches(
    world: World, agent: AgentConfig, config: WarmStartConfig, tokenizer: PreTrainedTokenizerBase, seed: int, first: int
) -> Iterator[list[Padded]]:
    """The batches of steps `first`, `first` + 1, ...; each is a list of passes, the largest first."""
    top_k, tags = agent.top_k, TAG_SETS[agent.tags]
    for step in count(first):
        single = step <= SINGLE_SHARE * config.steps
        rng = random.Random(f"{seed}/demonstrations/{step}")
        types = {"single": 1.0} if single else TYPE_SHARES
        shown = demonstrations(world, config.parallel_share, top_k, rng, types, tags)
        batch = list(islice(shown, config.batch_size))
        batch += islice(comparing_exercises(world, rng, tags), round(COMPARING_EXERCISES * config.batch_size))
        if not single:
            batch += islice(reading_exercises(world, top_k, rng, tags), _reading_exercises(config))
        rows = sorted(token_rows(batch, agent, tokenizer), key=lambda row: len(row[0]))
        passes = [_padded(part, tokenizer.pad_token_id) for part in _passes(rows)]
        yield sorted(passes, key=lambda part: -part.ids.numel())


def _reading_exercises(config: WarmStartConfig) -> int:
    """Half as many as there are fewer comparisons searched in parallel than one by one, in a batch.

    Half, since a parallel search has fewer tokens of its own to go wrong in: so both ways come to answer about equally
    well when sampled, and the outcome alone gives the policy little reason to prefer one.
    """
    missing = max(0.0, 1 - 2 * config.parallel_share)
    return round(0.5 * TYPE_SHARES["comparison"] * missing * config.batch_size)


def token_rows(
    demonstrations: Sequence[Demonstration], agent: AgentConfig, tokenizer: PreTrainedTokenizerBase
) -> list[Row]:
    """Token ids and labels of each demonstration; every piece is encoded by itself, as an episode does it."""
    texts = [segment.text for demonstration in demonstrations for segment in demonstration.segments]
    pieces = iter(tokenizer(texts, add_special_tokens=False)["input_ids"])
    rows = []
    for demonstration in demonstrations:
        ids = prompt_token_ids(agent.prompt, demonstration.draft.text, tokenizer)
        labels = [IGNORED] * len(ids)
        for segment in demonstration.segments:
            piece = next(pieces)
            ids += piece
            labels += piece if segment.trains_on else [IGNORED] * len(piece)
        rows.append((ids, labels))
    return rows


def _passes(rows: list[Row]) -> list[list[Row]]:
    """`rows`, sorted by length, cut into passes."""
    passes: list[list[Row]] = []
    for row in rows:
        full = not passes or len(passes[-1]) == ROWS_A_PASS
        if full or len(row[0]) > LONGEST_TO_SHORTEST * len(passes[-1][0][0]):
            passes.append([])
        passes[-1].append(row)
    return passes


def _padded(rows: list[Row], pad: int) -> Padded:
    import torch

    longest = -(-max(len(ids) for ids, _ in rows) // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
    ids = torch.tensor([row + [pad] * (longest - len(row)) for row, _ in rows])
    labels = torch.tensor([row + [IGNORED] * (longest - len(row)) for _, row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row, _ in rows])
    return Padded(ids, labels, mask)
