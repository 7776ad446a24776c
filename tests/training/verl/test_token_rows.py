"""Demonstrations as token ids: what is learned of them, and what the prompt of training has to do with evaluation's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from scripted import ScriptedEngine

from parallelsearch.agent.episode import run_episode
from parallelsearch.config import AgentConfig
from parallelsearch.engines.engine import Sampling
from parallelsearch.errors import DataError
from parallelsearch.records import Question, Structure
from parallelsearch.strategies.strategy import answer
from parallelsearch.training.verl.sft_dataset import TokenRowDataset
from parallelsearch.training.verl.token_rows import TokenRow, answer_rows, rollout_row, write_token_rows

AGENT = AgentConfig(
    strategy="direct", max_prompt_tokens=400, max_generation_tokens=200, max_response_tokens=2000, top_k=1
)


def question(text: str = "Which is older?", *answers: str) -> Question:
    return Question("q", "geoworld", "train", text, answers, "comparison", Structure.PARALLEL)


def learned(row: TokenRow) -> list[int]:
    return [token for token, own in zip(row.input_ids, row.loss_mask, strict=True) if own]


def test_an_answers_row_is_the_prompt_of_evaluation_the_answer_and_the_end(byte_tokenizer, retriever) -> None:
    asked = question("Which is older?", " Oslo ", "Christiania")
    (row,) = answer_rows([asked], byte_tokenizer, AGENT)
    engine = ScriptedEngine(byte_tokenizer, ["Oslo"])
    asyncio.run(answer(asked, engine, retriever, AGENT, Sampling()))
    (prompt,) = engine.inputs
    # Bytes have tokens of their own: "Oslo" is its four bytes (the tokenizer's few merges hold none of them).
    reply = [*(byte_tokenizer.convert_tokens_to_ids(letter) for letter in "Oslo"), byte_tokenizer.eos_token_id]
    assert row.input_ids == prompt + reply
    assert row.loss_mask == [0] * len(prompt) + [1] * 5


def test_questions_that_direct_could_not_answer_give_no_row(byte_tokenizer) -> None:
    unanswered, blank = question("Who?"), question("Who?", " ")
    long, told = question("Who? " * 200, "Oslo"), question("Who?", "Oslo " * 300)
    assert list(answer_rows([unanswered, blank, long, told], byte_tokenizer, AGENT)) == []


def test_a_rollouts_row_holds_the_engines_own_ids_and_learns_no_observation(byte_tokenizer, retriever) -> None:
    said = ["<think>two</think><search>Oslo ## Bergen</search>", "<think>so</think><answer>Oslo</answer>"]
    engine = ScriptedEngine(byte_tokenizer, said)
    agent = AGENT.model_copy(update={"strategy": "search", "max_sub_query_result_tokens": 400})
    rollout = asyncio.run(run_episode(question("Which is older?", "Oslo"), engine, retriever, agent, Sampling()))
    row = rollout_row(rollout)
    own = [byte_tokenizer.encode(text, add_special_tokens=False) for text in said]
    shown = byte_tokenizer.encode(rollout.episode.turns[0].observation, add_special_tokens=False)
    assert row.input_ids == engine.inputs[0] + own[0] + shown + own[1]
    assert row.loss_mask == [0] * len(engine.inputs[0]) + [1] * len(own[0]) + [0] * len(shown) + [1] * len(own[1])
    assert byte_tokenizer.decode(learned(row)) == "".join(said)


ROWS = [TokenRow([5, 6, 7, 8], [0, 0, 1, 1]), TokenRow([9, 300, 1], [0, 1, 0])]


def dataset(path: Path, max_length: int) -> TokenRowDataset:
    return TokenRowDataset(parquet_files=str(path), tokenizer=None, config=SimpleNamespace(max_length=max_length))


def test_the_data_set_gives_verl_ids_mask_and_positions(tmp_path: Path) -> None:
    assert write_token_rows(tmp_path / "train.parquet", iter(ROWS)) == 2
    rows = dataset(tmp_path / "train.parquet", 4)
    assert len(rows) == 2
    first, second = rows[0], rows[1]
    assert {key: value.tolist() for key, value in first.items()} == {
        "input_ids": [5, 6, 7, 8],
        "loss_mask": [0, 0, 1, 1],
        "position_ids": [0, 1, 2, 3],
    }
    assert second["input_ids"].tolist() == [9, 300, 1] and second["loss_mask"].tolist() == [0, 1, 0]
    assert all(tensor.dtype == torch.int64 for tensor in first.values())


def test_a_row_that_would_be_cut_and_a_broken_file_are_refused(tmp_path: Path) -> None:
    write_token_rows(tmp_path / "train.parquet", ROWS)
    with pytest.raises(DataError, match=r"has a row of 4 tokens, more than data\.max_length = 3"):
        dataset(tmp_path / "train.parquet", 3)
    (tmp_path / "broken.parquet").write_bytes((tmp_path / "train.parquet").read_bytes()[:-20])
    with pytest.raises(DataError, match=r"broken.parquet is no file of token ids"):
        dataset(tmp_path / "broken.parquet", 4)
