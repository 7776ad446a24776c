"""The study of real questions and a real language model (config/real.yaml), on a few questions, end to end."""

from __future__ import annotations

import asyncio
import gzip
import json
import statistics
from pathlib import Path

import pandas as pd
import pytest
from checkout import Checkout
from served import served

from parallelsearch.agent.prompts import chat_prompt
from parallelsearch.agent.simulated_retriever import SimulatedRetriever
from parallelsearch.config import ServerConfig, SimulatorConfig
from parallelsearch.engines.engine import Sampling
from parallelsearch.engines.hf import HFEngine
from parallelsearch.engines.openai_client import OpenAIClient
from parallelsearch.engines.policy_server import PolicyService
from parallelsearch.evaluation.episodes import read_episodes
from parallelsearch.files import read_json

pytestmark = pytest.mark.slow

QUESTIONS = 4
FILES = {
    "hotpotqa_official_100.json.gz": "hotpot_dev_distractor_v1.json.gz",
    "2wikimultihopqa_official_200.json.gz": "2wikimultihopqa_dev.json.gz",
}
ARMS = ["direct", "rag", "ircot"]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> Checkout:
    """The finished study over the first questions of each file; they bring their paragraphs with them."""
    pytest.importorskip("gguf")
    checkout = Checkout(tmp_path_factory.mktemp("real"))
    (checkout.root / "data" / "real").mkdir(parents=True)
    for source, target in FILES.items():
        with gzip.open(shared_data / "raw" / source, "rt", encoding="utf-8") as stream:
            rows = json.load(stream)[:QUESTIONS]
        with gzip.open(checkout.root / "data" / "real" / target, "wt", encoding="utf-8") as stream:
            json.dump(rows, stream)
    targets = ["tables/hotpotqa_published.csv", "eval/rag/seed0/2wikimultihopqa.dev/episodes.parquet"]
    files = [f"results-real/{target}" for target in targets]
    done = checkout.snakemake(*files, "--configfile", "config/real.yaml", timeout=1200)
    assert done.returncode == 0, done.stdout[-6000:]
    return checkout


def episodes(study: Checkout, arm: str, dataset: str) -> list:
    path = study.root / "results-real" / "eval" / arm / "seed0" / f"{dataset}.dev" / "episodes.parquet"
    return [episode for episode, _ in read_episodes(path)]


def test_the_model_out_of_the_package_knows_what_it_was_trained_on(study: Checkout) -> None:
    folder = study.root / "results-real" / "policies" / "smollm2-135m-instruct"
    assert read_json(folder / "manifest.json")["parameters"] == 134_515_008  # the model card says 135 million
    engine = HFEngine.open(folder)
    prompt = chat_prompt("What is the capital of France? Answer in one word.", engine.tokenizer)
    assert prompt.endswith("<|im_start|>assistant\n")
    ids = engine.tokenizer.encode(prompt, add_special_tokens=False)
    made = asyncio.run(engine.generate(ids, max_tokens=12, stop=(), sampling=Sampling()))
    engine.close()
    assert "Paris" in engine.tokenizer.decode(made.token_ids)
    assert made.finish_reason == "eos"


def test_the_model_out_of_the_package_plays_a_search_engine(study: Checkout) -> None:
    """It writes something under the number that its reply begins with, and the same again for the same seed."""
    engine = HFEngine.open(study.root / "results-real" / "policies" / "smollm2-135m-instruct")
    config = SimulatorConfig(policy="smollm2-135m-instruct", documents=1, max_tokens=24)
    question = episodes(study, "rag", "hotpotqa")[0].question
    with served(PolicyService(engine, "smollm2").app) as url:
        client = OpenAIClient(ServerConfig(url=f"{url}/v1", model="smollm2", timeout=300), "it", "training.simulator")

        def search(seed: int) -> list:
            retriever = SimulatedRetriever(client, question, config, noise=0.0, seed=seed)
            return asyncio.run(retriever.search([question.text], 3))

        found = [search(seed) for seed in range(5, 10)]
        assert search(5) == found[0]
    engine.close()
    passages = [hit.passage for ((hit,),) in found]
    assert all(passage.text and passage.title == question.text for passage in passages)
    assert statistics.median(len(passage.text.split()) for passage in passages) >= 3  # one may be short: they are drawn


def test_every_strategy_answered_every_question_with_its_own_calls(study: Checkout) -> None:
    answered = [episodes(study, arm, "hotpotqa") for arm in ARMS]
    assert [len(found) for found in answered] == [QUESTIONS] * len(ARMS)
    direct, rag, ircot = answered
    assert all((episode.llm_calls, episode.searches) == (1, 0) and episode.answer for episode in direct)
    assert all((episode.llm_calls, episode.searches) == (1, 1) and episode.answer for episode in rag)
    assert all(1 <= episode.llm_calls == episode.searches <= 2 for episode in ircot)
    assert not any(e.stop_reason.is_infrastructure_failure for found in answered for e in found)


def test_the_passages_are_those_of_the_questions_and_often_the_supporting_ones(study: Checkout) -> None:
    found = []
    for dataset in ("hotpotqa", "2wikimultihopqa"):
        for episode in episodes(study, "rag", dataset):
            titles = {hit.passage.title for hit in episode.turns[0].sub_queries[0].hits}
            assert len(episode.turns[0].sub_queries[0].hits) == 3
            found.append(len(titles & set(episode.question.supporting_titles)) > 0)
    assert sum(found) >= 0.75 * len(found)


def test_nothing_was_trained_and_published_numbers_stand_beside_ours(study: Checkout) -> None:
    results = study.root / "results-real"
    assert not (results / "train").exists() and not (results / "warm_start").exists()
    table = pd.read_csv(results / "tables" / "hotpotqa_published.csv")
    row = table[(table["source"] == "Search-R1") & (table["method"] == "RAG")].iloc[0]
    assert (row["arm"], row["n"], row["em_published"]) == ("rag", QUESTIONS, 0.299)
