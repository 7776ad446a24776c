"""Rewards at tokens, read where veRL's losses read them: the padded token_level_scores of a batch."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
import torch
from scripted import ScriptedEngine

from parallelsearch.agent.episode import Rollout, run_episode
from parallelsearch.config import AgentConfig, RewardConfig
from parallelsearch.engines.engine import Sampling
from parallelsearch.records import Question, StopReason, Structure
from parallelsearch.rewards.compose import score
from parallelsearch.rewards.semantics.stepsearch import passage_text

pytest.importorskip("verl.trainer")

from verl.trainer.ppo import core_algos
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from parallelsearch.training.agent_loop import loop_output

QUESTION = Question("q", "d", "train", "Which is older?", ("Oslo",), "", Structure.PARALLEL, 2, ("Oslo", "Bergen"))
AGENT = AgentConfig(max_prompt_tokens=512, max_response_tokens=2048, max_generation_tokens=256)
SEARCHES = ("<think>t</think><search>Oslo founded</search>", "<think>t</think><search>Bergen founded</search>")
ANSWER = "<think>t</think><answer>Oslo</answer>"
WEIGHTS = RewardConfig(semantics="stepsearch")


def rolled_out(tokenizer, retriever, *texts: str) -> Rollout:
    engine = ScriptedEngine(tokenizer, texts)
    return asyncio.run(run_episode(QUESTION, engine, retriever, AGENT, Sampling(1.0)))


@pytest.fixture(scope="module")
def gold(passages) -> tuple[str, ...]:
    return tuple(passage_text(passage) for passage in passages[:2])


def batch(outputs) -> dict[str, torch.Tensor]:
    """The outputs as veRL's trainer has them: nested fields of the queue, padded, rm_scores under their later name."""
    fields = [output.as_dict() for output in outputs]
    kept = [{key: row[key] for key in ("responses", "response_mask", "rm_scores")} for row in fields]
    data = list_of_dict_to_tensordict(kept).to_padded_tensor()
    return {"token_level_scores": data["rm_scores"], **{key: data[key] for key in ("responses", "response_mask")}}


def ends_of(tokenizer, ids: list[int], tag: str) -> list[int]:
    """Positions of the tokens that complete `tag` in the model's text, found by decoding ever longer prefixes."""
    found, seen = [], 0
    for position in range(len(ids)):
        count = tokenizer.decode(ids[: position + 1]).count(tag)
        if count > seen:
            found.append(position)
        seen = count
    return found


def test_each_reward_stands_at_its_token_and_masked_tokens_carry_none(byte_tokenizer, retriever, gold) -> None:
    rollouts = [
        rolled_out(byte_tokenizer, retriever, *SEARCHES, ANSWER),
        rolled_out(byte_tokenizer, retriever, SEARCHES[0], SEARCHES[0], ANSWER),
        rolled_out(byte_tokenizer, retriever, ANSWER),
    ]
    rewards = [score(rollout.episode, QUESTION, WEIGHTS, gold=gold) for rollout in rollouts]
    data = batch(
        [
            loop_output(rollout, reward, {}, True, byte_tokenizer)
            for rollout, reward in zip(rollouts, rewards, strict=True)
        ]
    )
    scores, mask = data["token_level_scores"], data["response_mask"]
    assert scores.shape == mask.shape
    for row, (rollout, reward) in enumerate(zip(rollouts, rewards, strict=True)):
        assert float(scores[row].sum()) == pytest.approx(reward.total, abs=1e-5)
        ids = rollout.response_ids
        searched = [place for place in ends_of(byte_tokenizer, ids, "</search>") if rollout.trains_on[place]]
        expected = [0.0] * scores.shape[1]
        for place, earned in zip(searched, reward.by_turn, strict=False):
            expected[place] = earned
        expected[ends_of(byte_tokenizer, ids, "</answer>")[-1]] = reward.total - sum(reward.by_turn)
        assert scores[row].tolist() == pytest.approx(expected, abs=1e-5)
    assert not scores[mask == 0].any()
    assert [len(reward.by_turn) for reward in rewards] == [3, 3, 1]
    assert rewards[0].by_turn[0] > 0.3 and rewards[0].by_turn[1] > 0.3  # each search found one of the two paragraphs
    assert rewards[1].by_turn[1] == pytest.approx(-1.0)  # the same search again: nothing gained, all seen before


def test_gae_credits_what_comes_later_and_grpo_the_sum(byte_tokenizer, retriever, gold) -> None:
    rollouts = [rolled_out(byte_tokenizer, retriever, SEARCHES[0], SEARCHES[0], ANSWER) for _ in range(2)]
    rollouts.append(rolled_out(byte_tokenizer, retriever, ANSWER))
    rewards = [score(rollout.episode, QUESTION, WEIGHTS, gold=gold) for rollout in rollouts]
    data = batch(
        [
            loop_output(rollout, reward, {}, True, byte_tokenizer)
            for rollout, reward in zip(rollouts, rewards, strict=True)
        ]
    )
    scores, mask = data["token_level_scores"], data["response_mask"]
    _, returns = core_algos.compute_gae_advantage_return(scores, torch.zeros_like(scores), mask, 1.0, 1.0)
    first = rollouts[0].episode.turns[0].model_tokens
    after_first = first + rollouts[0].episode.turns[0].observation_tokens
    # gamma = lambda = 1, values 0: a token's return is the sum of the rewards from it on.
    assert float(returns[0, first - 1]) == pytest.approx(rewards[0].total, abs=1e-5)
    assert float(returns[0, after_first]) == pytest.approx(rewards[0].total - rewards[0].by_turn[0], abs=1e-5)
    advantages, _ = core_algos.compute_grpo_outcome_advantage(scores, mask, ["p", "p", "p"])
    totals = torch.tensor([reward.total for reward in rewards])
    standard = (totals - totals.mean()) / (totals.std() + 1e-6)
    for row in range(3):
        assert advantages[row][mask[row] == 1].tolist() == pytest.approx([float(standard[row])] * int(mask[row].sum()))


def test_an_episode_that_ends_with_an_observation_is_rewarded_on_a_trained_token(byte_tokenizer, retriever) -> None:
    whole = rolled_out(byte_tokenizer, retriever, *SEARCHES, ANSWER)
    turns = whole.episode.turns[:1]
    cut = turns[0].model_tokens + turns[0].observation_tokens
    episode = dataclasses.replace(whole.episode, turns=turns, answer=None, stop_reason=StopReason.TOKEN_LIMIT)
    rollout = Rollout(episode, whole.prompt_ids, whole.response_ids[:cut], whole.trains_on[:cut], whole.log_probs[:cut])
    reward = score(episode, QUESTION, RewardConfig(lambda_s=0.35))
    scores = loop_output(rollout, reward, {}, True, byte_tokenizer).as_dict()["rm_scores"].tolist()
    assert scores[turns[0].model_tokens - 1] == pytest.approx(reward.total)
    assert sum(map(abs, scores)) == pytest.approx(abs(reward.total)) and reward.total != 0


def test_without_the_mask_every_token_is_trained_on(byte_tokenizer, retriever) -> None:
    rollout = rolled_out(byte_tokenizer, retriever, *SEARCHES, ANSWER)
    reward = score(rollout.episode, QUESTION, RewardConfig())
    masked, unmasked = (
        loop_output(rollout, reward, {}, False, byte_tokenizer, mask_observations=mask).as_dict()
        for mask in (True, False)
    )
    assert masked["response_mask"].tolist() == rollout.trains_on and 0 in rollout.trains_on
    assert unmasked["response_mask"].tolist() == [1] * len(rollout.response_ids)
    assert masked["rm_scores"].tolist() == unmasked["rm_scores"].tolist()
