"""The veRL side of the episode loop: masks, rewards and failed episodes as veRL's loss will see them."""

from __future__ import annotations

import dataclasses
import json

import pytest

from parallelsearch.agent.episode import Rollout
from parallelsearch.records import Action, Episode, Question, StopReason, Structure, Turn

pytest.importorskip("verl")

from parallelsearch.agent.simulated_retriever import SimulatedRetriever
from parallelsearch.config import AgentConfig, RewardConfig, ServerConfig, SimulatorConfig
from parallelsearch.training.agent_loop import LoopSettings, episode_seed, loop_output, question_of, retriever_for

QUESTION = Question("q1", "geoworld", "train", "Who?", ("A", "B"), "comparison", Structure.PARALLEL, 2, ("X",), (3, 4))


class EndToken:
    eos_token_id = 9


def rollout(stop: StopReason = StopReason.ANSWERED, **ids) -> Rollout:
    turn = Turn("t", Action.SEARCH, generate_seconds=0.5, search_seconds=0.25)
    episode = Episode(QUESTION, (turn, turn), "A", stop, True)
    values = {"response_ids": [5, 6, 7, 8], "trains_on": [1, 1, 0, 1], "log_probs": [-0.1, -0.2, 0.0, -0.3]}
    return Rollout(episode, [1, 2], **(values | ids))


def test_the_mask_is_one_on_the_models_tokens_and_the_reward_on_the_last() -> None:
    output = loop_output(rollout(), 1.45, {"global_steps": 3}, True, EndToken())
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
    fields = loop_output(rollout(stop), 0.7, {}, True, EndToken()).as_dict()
    assert fields["responses"].tolist() == [9]
    assert fields["response_mask"].tolist() == [0]
    assert fields["rm_scores"].tolist() == [0.0]


def test_an_episode_without_a_token_still_has_a_form() -> None:
    empty = rollout(StopReason.TOKEN_LIMIT, response_ids=[], trains_on=[], log_probs=[])
    assert loop_output(empty, 0.0, {}, True, EndToken()).as_dict()["response_mask"].tolist() == [0]


def test_a_question_survives_the_data_file() -> None:
    assert question_of(json.dumps(dataclasses.asdict(QUESTION))) == QUESTION


def test_seeds_differ_between_episodes_and_not_between_runs() -> None:
    seeds = {episode_seed(s, t, r, n) for s in range(3) for t in range(5) for r in range(40) for n in range(3)}
    assert len(seeds) == 3 * 5 * 40 * 3
    assert episode_seed(1, 2, 3, 4) == episode_seed(1, 2, 3, 4)


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
