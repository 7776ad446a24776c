"""ZeroSearch's search engine that is a language model: its curriculum, what it is told, and what is read of it.

tests/workflow/test_real.py lets a real small model answer a search.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from fastapi import FastAPI, Request
from served import served

from parallelsearch.agent.simulated_retriever import (
    SimulatedRetriever,
    noise_share,
    read_documents,
    simulator_message,
)
from parallelsearch.config import ServerConfig, SimulatorConfig
from parallelsearch.config_files import validated
from parallelsearch.engines.openai_client import OpenAIClient
from parallelsearch.errors import ConfigError, RetrieverError
from parallelsearch.records import Question, Structure

QUESTION = Question(
    "q", "d", "train", "Which is older, Oslo or Lima?", ("Oslo", "Christiania"), "c", Structure.PARALLEL
)
CONFIG = SimulatorConfig(policy="any", documents=2, max_tokens=40)


@pytest.mark.parametrize(
    ("step", "share"),
    # b = 4, from 0 to 0.5 in 200 steps: i/m = 1/2 gives (2 - 1) / 6, 1/4 (sqrt(2) - 1) / 6, 3/4 (2 sqrt(2) - 1) / 6.
    [(0, 0.0), (50, 0.0690356), (100, 1 / 6), (150, 0.3047379), (200, 0.5)],
)
def test_the_curriculum_is_the_papers(step: int, share: float) -> None:
    assert noise_share(step, 200, CONFIG) == pytest.approx(share, abs=1e-6)


def test_it_may_start_with_noise_and_have_another_base() -> None:
    other = CONFIG.model_copy(update={"p_start": 0.2, "p_end": 0.4, "base": 9.0})
    assert noise_share(5, 10, other) == pytest.approx(0.2 + (3 - 1) / 8 * 0.2)  # 9^(1/2) = 3


def test_the_model_is_told_question_answer_and_whether_to_help() -> None:
    useful, noisy = (simulator_message(QUESTION, "founding of Oslo", flag, CONFIG) for flag in (True, False))
    for message in (useful, noisy):
        assert (
            "Question: Which is older, Oslo or Lima?\nAnswer: Oslo or Christiania\nQuery: founding of Oslo" in message
        )
        assert "Write 2 short documents" in message and "about 30 words" in message
        assert message.endswith("Doc 1: ...\nDoc 2: ...")
    assert "must be useful" in useful and "must be useless" in noisy


@pytest.mark.parametrize(
    ("reply", "documents"),
    [
        ("Doc 1: Oslo is old.\nDoc 2: Lima is\nyounger.", ["Oslo is old.", "Lima is younger."]),
        ("Sure!\n\n**Document 1:** a\n\n2. b\n3) c", ["a", "b"]),
        ("Doc 1: founded\n1040. Then\nDoc 2: b", ["founded 1040. Then", "b"]),
    ],
)
def test_numbered_documents_are_read(reply: str, documents: list[str]) -> None:
    assert read_documents(reply, 2) == documents


@pytest.mark.parametrize("reply", ["", "I cannot help.", "Doc 1: only one", "Doc 1:\nDoc 2:", "Doc 2: b\nDoc 3: c"])
def test_fewer_documents_than_asked_for_are_an_error(reply: str) -> None:
    with pytest.raises(RetrieverError, match=r"gave [01] of 2 documents.*training\.simulator\.max_tokens"):
        read_documents(reply, 2)


def test_exactly_one_model_is_named() -> None:
    server = {"url": "http://127.0.0.1:8000/v1", "model": "m"}
    for values, found in (({}, "neither"), ({"policy": "a", "server": server}, "both")):
        with pytest.raises(ConfigError, match=f"training.simulator has {found} of policy and server"):
            validated(SimulatorConfig, values, "arm")


class Recorder:
    """A chat server that records what it is asked and always gives two documents."""

    def __init__(self) -> None:
        self.bodies: list[dict] = []
        self.app = FastAPI()
        self.app.post("/v1/chat/completions")(self.chat)

    async def chat(self, request: Request) -> dict:
        self.bodies.append(await request.json())
        return {"choices": [{"message": {"role": "assistant", "content": " a b\nDoc 2: c"}}]}


def test_noise_comes_as_often_as_it_should_and_the_same_again_with_the_same_seed() -> None:
    recorder = Recorder()
    with served(recorder.app) as url:
        client = OpenAIClient(ServerConfig(url=f"{url}/v1", model="m"), "the simulated search", "training.simulator")

        async def searches(noise: float, seed: int, count: int = 80):
            retriever = SimulatedRetriever(client, QUESTION, CONFIG, noise, seed)
            found = await retriever.search([f"query {number}" for number in range(count)], 1)
            asked = sorted(recorder.bodies, key=lambda body: body["messages"][0]["content"].split("Query: ")[1])
            recorder.bodies.clear()
            return found, asked

        def useful(asked) -> int:
            return Counter("must be useful" in body["messages"][0]["content"] for body in asked)[True]

        with asyncio.Runner() as runner:
            found, asked = runner.run(searches(0.25, 1))
            assert [[hit.passage.text for hit in hits] for hits in found] == [["a b"]] * 80
            assert found[7][0].passage.title == "query 7"
            assert len({hit.passage.id for hits in found for hit in hits}) == 80
            assert 60 - 16 < useful(asked) < 60 + 16  # four standard deviations of 80 draws with p = 0.75
            assert runner.run(searches(0.25, 1))[1] == asked
            assert runner.run(searches(0.25, 2))[1] != asked
            assert useful(runner.run(searches(0.0, 1))[1]) == 80
            assert useful(runner.run(searches(1.0, 1))[1]) == 0
