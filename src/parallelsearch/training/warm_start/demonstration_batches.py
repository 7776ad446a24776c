"""Batches of demonstrations and exercises as token ids, labels and masks: what one step of the warm start reads.

The steps are a curriculum: copying names, then comparing and choosing, then whole demonstrations, at first of questions
with a single look-up, with some exercises beside them. Each part is learned from far fewer tokens once the part before
it is.

Every batch is made from the seed and the step alone, so that a killed run goes on from its last checkpoint with the
batches it would have seen.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING

from parallelsearch.agent.prompts import prompt_token_ids
from parallelsearch.agent.tags import TAG_SETS
from parallelsearch.config import AgentConfig, WarmStartConfig
from parallelsearch.geoworld.facts import World
from parallelsearch.geoworld.questions import TYPE_SHARES
from parallelsearch.training.warm_start.demonstrations import Demonstration, Segment, demonstrations
from parallelsearch.training.warm_start.exercises import Exercises

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

COPYING_UNTIL = 0.33  # of the steps: names are copied
COMPARING_UNTIL = 0.6  # of the steps: exercises of single steps; from then on whole demonstrations
SINGLE_UNTIL = 0.63  # of the steps: the first demonstrations are of questions with a single look-up
# Rows of a batch by exercise, for each of its demonstrations.
COPYING = {"copying": 0.67}
COMPARING = {
    "copying": 0.17, "choosing": 0.08, "comparing_numbers": 0.75, "comparing_kinds": 0.25, "looking_up": 0.42,
    "given": 1.0, "planning": 0.5,
}  # fmt: skip
BESIDE = {
    "choosing": 0.04, "comparing_numbers": 0.42, "comparing_kinds": 0.12, "looking_up": 0.33, "given": 0.5,
    "planning": 1.0, "reading": 0.42,
}  # fmt: skip
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
    """The batches of steps `first`, `first` + 1, ...; each is a list of passes, the largest first.

    A batch is made while the one before it is read, in a thread of its own.
    """
    stream = _batches(world, agent, config, tokenizer, seed, first)
    with ThreadPoolExecutor(1) as maker:
        coming = maker.submit(next, stream)
        while True:
            batch = coming.result()
            coming = maker.submit(next, stream)
            yield batch


def _batches(
    world: World, agent: AgentConfig, config: WarmStartConfig, tokenizer: PreTrainedTokenizerBase, seed: int, first: int
) -> Iterator[list[Padded]]:
    tags = TAG_SETS[agent.tags]
    exercises = Exercises(world, tags)
    for step in count(first):
        done, rng = step / config.steps, random.Random(f"{seed}/demonstrations/{step}")
        shown: list[Demonstration] = []
        if done > COMPARING_UNTIL:
            types = {"single": 1.0} if done <= SINGLE_UNTIL else TYPE_SHARES
            shown = list(
                islice(demonstrations(world, config.parallel_share, agent.top_k, rng, types, tags), config.batch_size)
            )
        shares = COPYING if done <= COPYING_UNTIL else COMPARING if done <= COMPARING_UNTIL else BESIDE
        wanted = {name: max(1, round(share * config.batch_size)) for name, share in shares.items()}
        shown += islice(exercises.given(rng), wanted.pop("given", 0))
        shown += islice(exercises.planning(config.parallel_share, rng), wanted.pop("planning", 0))
        shown += islice(exercises.reading(agent.top_k, rng), wanted.pop("reading", 0))
        drills = [getattr(exercises, name)(rng) for name, rows in wanted.items() for _ in range(rows)]
        rows = [*token_rows(shown, agent, tokenizer), *exercise_rows(drills, tokenizer)]
        rows.sort(key=lambda row: len(row[0]))
        passes = [_padded(part, tokenizer.pad_token_id) for part in _passes(rows)]
        yield sorted(passes, key=lambda part: -part.ids.numel())


def token_rows(
    demonstrations: Sequence[Demonstration], agent: AgentConfig, tokenizer: PreTrainedTokenizerBase
) -> list[Row]:
    """Token ids and labels of each demonstration; every piece is encoded by itself, as an episode does it."""
    rows = exercise_rows([demonstration.segments for demonstration in demonstrations], tokenizer)
    prompts = (prompt_token_ids(agent.prompt, shown.draft.text, tokenizer) for shown in demonstrations)
    return [
        (prompt + ids, [IGNORED] * len(prompt) + labels) for prompt, (ids, labels) in zip(prompts, rows, strict=True)
    ]


def exercise_rows(exercises: Sequence[tuple[Segment, ...]], tokenizer: PreTrainedTokenizerBase) -> list[Row]:
    """Token ids and labels of rows without a prompt."""
    texts = [segment.text for segments in exercises for segment in segments]
    pieces = iter(tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else ())
    rows = []
    for segments in exercises:
        ids: list[int] = []
        labels: list[int] = []
        for segment in segments:
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
