"""The veRL side of the episode loop: masks, rewards and failed episodes as veRL's loss will see them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from types import SimpleNamespace

import pytest

from parallelsearch.agent.episode import Rollout
from parallelsearch.agent.simulated_retriever import SimulatedRetriever
from parallelsearch.config import AgentConfig, RewardConfig, ServerConfig, SimulatorConfig
from parallelsearch.records import Action, Episode, Question, StopReason, Structure, Turn
from parallelsearch.rewards.breakdown import RewardBreakdown

pytest.importorskip("verl.trainer")

from parallelsearch.training import agent_loop
from parallelsearch.training.agent_loop import (
    EpisodeLoop,
    LoopSettings,
    episode_seed,
    loop_output,
    question_of,
    retriever_for,
)

QUESTION = Question("q1", "geoworld", "train", "Who?", ("A", "B"), "comparison", Structure.PARALLEL, 2, ("X",), (3, 4))


class EndToken:
    eos_token_id = 9


def rollout(stop: StopReason = StopReason.ANSWERED, **ids) -> Rollout:
    search = Turn("s", Action.SEARCH, model_tokens=2, observation_tokens=1, generate_seconds=0.5, search_seconds=0.25)
    answer = Turn("a", Action.ANSWER, model_tokens=1, generate_seconds=0.5, search_seconds=0.25)
    episode = Episode(QUESTION, (search, answer), "A", stop, True)
    values = {"response_ids": [5, 6, 7, 8], "trains_on": [1, 1, 0, 1], "log_probs": [-0.1, -0.2, 0.0, -0.3]}
    return Rollout(episode, [1, 2], **(values | ids))


def outcome(total: float) -> RewardBreakdown:
    return RewardBreakdown({"outcome": total}, total)


def test_the_mask_is_one_on_the_models_tokens_and_the_reward_on_the_last() -> None:
    output = loop_output(rollout(), outcome(1.45), {"global_steps": 3}, True, EndToken())
    fields = output.as_dict()
    assert fields["response_mask"].tolist() == [1, 1, 0, 1]
    assert fields["rm_scores"].tolist() == pytest.approx([0, 0, 0, 1.45])
    assert fields["rollout_log_probs"].tolist() == pytest.approx([-0.1, -0.2, 0.0, -0.3])
    assert output.num_turns == 2
    assert output.metrics.generate_sequences == 1.0
    assert output.metrics.tool_calls == 0.5
    assert output.extra_fields["global_steps"] == 3


@pytest.mark.parametrize("stop", [StopReason.RETRIEVER_ERROR, StopReason.ENGINE_ERROR])
def test_a_failed_episode_is_masked_out_whatever_it_generated(stop: StopReason) -> None:
    fields = loop_output(rollout(stop), outcome(0.7), {}, True, EndToken()).as_dict()
    assert fields["responses"].tolist() == [9]
    assert fields["response_mask"].tolist() == [0]
    assert fields["rm_scores"].tolist() == [0.0]


def test_an_episode_without_a_token_still_has_a_form() -> None:
    empty = rollout(StopReason.TOKEN_LIMIT, response_ids=[], trains_on=[], log_probs=[])
    assert loop_output(empty, outcome(0.0), {}, True, EndToken()).as_dict()["response_mask"].tolist() == [0]


def test_a_question_survives_the_data_file() -> None:
    assert question_of(json.dumps(dataclasses.asdict(QUESTION))) == QUESTION


def test_seeds_differ_between_episodes_and_not_between_runs() -> None:
    seeds = {episode_seed(s, t, r, n) for s in range(3) for t in range(5) for r in range(40) for n in range(3)}
    assert len(seeds) == 3 * 5 * 40 * 3
    assert episode_seed(1, 2, 3, 4) == episode_seed(1, 2, 3, 4)


class ScriptedServer:
    """veRL's generation servers, as far as an episode sees them: says the given texts one after another."""

    def __init__(self, tokenizer, *texts: str) -> None:
        self._ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts]

    async def generate(self, request_id: str, prompt_ids: list[int], sampling_params: dict) -> SimpleNamespace:
        ids = self._ids.pop(0)
        await asyncio.sleep(0)
        return SimpleNamespace(token_ids=ids, log_probs=[-0.5] * len(ids), extra_fields={"global_steps": 4})


def episode_loop(tokenizer, reward: RewardConfig, rollouts: int, folder, *texts: str) -> EpisodeLoop:
    """A loop as veRL makes one for a rollout, without veRL's own configuration."""
    loop = EpisodeLoop.__new__(EpisodeLoop)
    agent = AgentConfig(max_prompt_tokens=512, max_response_tokens=2048, max_generation_tokens=256)
    loop.settings = LoopSettings(agent=agent, reward=reward, seed=0, index="index", records=str(folder))
    loop.rollout_config = SimpleNamespace(n=rollouts)
    loop.tokenizer, loop.server_manager = tokenizer, ScriptedServer(tokenizer, *texts)
    return loop


def test_a_group_is_rewarded_together(byte_tokenizer, retriever, tmp_path, monkeypatch) -> None:
    """OTC-GRPO by hand: two searches, one search (the fewest of a right answer), none (wrong) of the same prompt."""
    monkeypatch.setattr(agent_loop, "open_retriever", lambda settings: retriever)
    search, right, wrong = "<search>Oslo</search>", "<answer>B</answer>", "<answer>C</answer>"
    scripts = [(search, search, right), (search, right), (wrong,)]
    weights = RewardConfig(semantics="otc", otc={"group": True})
    row = {
        "extra_info": {"question": json.dumps(dataclasses.asdict(QUESTION)), "index": 0},
        "uid": "u",
        "global_steps": 4,
    }

    async def group() -> list:
        loops = [episode_loop(byte_tokenizer, weights, 3, tmp_path, *texts) for texts in scripts]
        runs = [loop.run({"logprobs": True}, session_id=number, **row) for number, loop in enumerate(loops)]
        return await asyncio.gather(*runs)

    outputs = asyncio.run(group())
    assert [output.reward_score for output in outputs] == pytest.approx([3**0.5 / 2, 1.0, 0.0])
    records = [json.loads(line) for path in tmp_path.glob("*.jsonl") for line in path.read_text().splitlines()]
    assert sorted(record["reward"]["total"] for record in records) == pytest.approx([0.0, 3**0.5 / 2, 1.0])
    assert sorted(record["em"] for record in records) == [0.0, 1.0, 1.0]


def test_gold_paragraphs_come_with_the_row(byte_tokenizer, retriever, passages, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(agent_loop, "open_retriever", lambda settings: retriever)
    gold = [f"{passages[0].title}\n{passages[0].text}"]
    loop = episode_loop(
        byte_tokenizer,
        RewardConfig(semantics="stepsearch"),
        1,
        tmp_path,
        "<search>Oslo Norway</search>",
        "<answer>B</answer>",
    )
    info = {"question": json.dumps(dataclasses.asdict(QUESTION)), "index": 0, "gold_paragraphs": json.dumps(gold)}
    output = asyncio.run(loop.run({"logprobs": True}, extra_info=info, uid="u", session_id=0))
    earned = [reward for reward in output.token_rewards if reward]
    assert earned == pytest.approx([1.0, 1.0])  # the gold paragraph, found whole; the right answer ('X' is no query)


def test_a_simulator_takes_the_place_of_the_index_and_grows_noisier() -> None:
    """Halfway of the published curriculum (base 4, from 0 to 0.5) a sixth of the searches is noise."""
    simulator = SimulatorConfig(server=ServerConfig(url="http://127.0.0.1:9/v1", model="m"))
    settings = LoopSettings(
        agent=AgentConfig(), reward=RewardConfig(), seed=0, index="none", records="", steps=203 * 2, simulator=simulator
    )
    written = LoopSettings.model_validate_json(settings.model_dump_json())
    noise = []
    for step in (203, 406):
        retriever = retriever_for(written, QUESTION, step, seed=1)
        assert isinstance(retriever, SimulatedRetriever)
        noise.append(retriever._noise)
    assert noise == pytest.approx([1 / 6, 0.5])
