"""Demonstrations as token ids: what supervised training with veRL reads, one row a demonstration.

Columns: `input_ids`, prompt and response; `loss_mask`, 1 on the tokens that are learned. The ids of a rollout are the
very ones that the engine returned; nothing is tokenised a second time.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from parallelsearch.agent.episode import Rollout
from parallelsearch.agent.prompts import chat_prompt
from parallelsearch.config import AgentConfig
from parallelsearch.errors import DataError
from parallelsearch.files import replacing
from parallelsearch.records import Question
from parallelsearch.strategies import direct

SCHEMA = pa.schema([("input_ids", pa.list_(pa.int32())), ("loss_mask", pa.list_(pa.int8()))])
ROWS_PER_GROUP = 4096


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One demonstration; both lists have one entry a token."""

    input_ids: list[int]
    loss_mask: list[int]


def answer_rows(questions: Iterable[Question], tokenizer: Any, agent: AgentConfig) -> Iterator[TokenRow]:
    """Each question's first golden answer and the end token, after the prompt that the strategy `direct` asks with.

    A question without an answer, or whose prompt exceeds agent.max_prompt_tokens (`direct` does not ask it either), or
    whose answer exceeds agent.max_generation_tokens, gives no row.
    """
    for question in questions:
        prompt = tokenizer.encode(chat_prompt(direct.message(question), tokenizer), add_special_tokens=False)
        answer = question.golden_answers[0].strip() if question.golden_answers else ""
        reply = [*tokenizer.encode(answer, add_special_tokens=False), tokenizer.eos_token_id]
        if answer and len(prompt) <= agent.max_prompt_tokens and len(reply) <= agent.max_generation_tokens:
            yield TokenRow(prompt + reply, [0] * len(prompt) + [1] * len(reply))


def rollout_row(rollout: Rollout) -> TokenRow:
    """A rollout as it was generated; prompt and observations are outside the loss."""
    return TokenRow(rollout.prompt_ids + rollout.response_ids, [0] * len(rollout.prompt_ids) + rollout.trains_on)


def shuffled(rows: Iterable[TokenRow], seed: int) -> list[TokenRow]:
    """`rows` in an order drawn from `seed`."""
    drawn = list(rows)
    random.Random(f"{seed}/demonstrations").shuffle(drawn)
    return drawn


def write_token_rows(path: Path, rows: Iterable[TokenRow]) -> int:
    """Writes `rows` atomically; returns their number."""
    written, remaining = 0, iter(rows)
    with replacing(path) as partial, pq.ParquetWriter(partial, SCHEMA) as writer:
        while batch := list(islice(remaining, ROWS_PER_GROUP)):
            columns = {"input_ids": [row.input_ids for row in batch], "loss_mask": [row.loss_mask for row in batch]}
            writer.write_table(pa.table(columns, schema=SCHEMA))
            written += len(batch)
    return written


def read_token_rows(paths: Sequence[Path]) -> pa.Table:
    """The rows of several files, one after another; a broken file is a DataError that names it."""
    tables = []
    for path in paths:
        try:
            tables.append(pq.read_table(path, columns=SCHEMA.names))
        except (OSError, pa.ArrowInvalid) as error:
            raise DataError(f"{path} is no file of token ids ({error}); delete the run and train again.") from None
    return pa.concat_tables(tables).combine_chunks()
