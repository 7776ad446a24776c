"""The house's episode loop as a veRL agent loop: rollouts, rewards and one record an episode for the training curves.

veRL instantiates this class for every episode in its agent-loop workers. What it needs of the arm lies in one JSON
file in the run's folder (see verl/job.py). A failure of the infrastructure gives an episode whose tokens are all masked
out: it never enters a loss.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics

from parallelsearch.agent.episode import Rollout, run_episode
from parallelsearch.agent.protocol import has_tag
from parallelsearch.agent.simulated_retriever import SimulatedRetriever, noise_share
from parallelsearch.agent.tags import TAG_SETS
from parallelsearch.answers import exact_match
from parallelsearch.config import AgentConfig, RewardConfig, Section, SimulatorConfig
from parallelsearch.engines.engine import FinishReason, Generation, Sampling
from parallelsearch.engines.openai_client import OpenAIClient
from parallelsearch.errors import EngineError
from parallelsearch.records import Episode, Question, Structure
from parallelsearch.retrieval.retriever import Retriever
from parallelsearch.rewards.breakdown import RewardBreakdown
from parallelsearch.rewards.compose import score
from parallelsearch.training.verl.rollout_groups import RolloutGroups
from parallelsearch.training.verl.token_rewards import TokenRewardedOutput, rewards_of_tokens

GROUPS: RolloutGroups[Episode] = RolloutGroups()  # of this process, which runs all rollouts of a prompt
_POLICY_VERSION_KEYS = ("global_steps", "min_global_steps", "max_global_steps")


class LoopSettings(Section):
    """What the agent-loop workers read: the arm, the retriever (a folder or a URL), and where records go.

    With a `simulator`, which has a server by now, nothing is searched in the index.
    """

    agent: AgentConfig
    reward: RewardConfig
    mask_observations: bool = True
    seed: int
    index: str
    retriever_url: str | None = None
    records: str
    steps: int = 1
    simulator: SimulatorConfig | None = None


@dataclass(slots=True)
class VerlEngine:
    """veRL's generation servers as an Engine. `versions` collects which weights generated the episode."""

    server: Any
    tokenizer: Any
    parameters: dict[str, Any]
    request_id: str
    versions: dict[str, Any]

    async def generate(
        self, token_ids: Sequence[int], *, max_tokens: int, stop: Sequence[str], sampling: Sampling
    ) -> Generation:
        """See Engine.generate. Temperature and nucleus are veRL's own settings; the seed is the episode's."""
        parameters = {
            **self.parameters,
            "max_tokens": max_tokens,
            "stop": list(stop),
            "include_stop_str_in_output": True,
        }
        if sampling.seed is not None:
            parameters["seed"] = sampling.seed % 2**31
        reply = await self.server.generate(
            request_id=self.request_id, prompt_ids=list(token_ids), sampling_params=parameters
        )
        self.versions |= {key: reply.extra_fields[key] for key in _POLICY_VERSION_KEYS if key in reply.extra_fields}
        ids = [int(token) for token in reply.token_ids]
        if not ids:
            raise EngineError("The generation server returned no token; see its log.")
        if ids[-1] == self.tokenizer.eos_token_id:
            reason: FinishReason = "eos"
        else:
            reason = "length" if reply.extra_fields.get("finish_reason") == "length" else "stop_string"
        return Generation(ids, list(reply.log_probs or [0.0] * len(ids)), reason)


class EpisodeLoop(AgentLoopBase):
    """One question, one episode."""

    def __init__(self, *args: Any, settings: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = read_settings(settings)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> TokenRewardedOutput:
        """`row` is a row of the data file written by verl/job.py, with what veRL adds to it."""
        settings = self.settings
        question = question_of(row["extra_info"]["question"])
        versions: dict[str, Any] = {}
        engine = VerlEngine(self.server_manager, self.tokenizer, sampling_params, uuid4().hex, versions)
        step = int(row.get("global_steps", 0))
        seed = episode_seed(settings.seed, step, int(row["extra_info"]["index"]), int(row.get("session_id", 0)))
        retriever = retriever_for(settings, question, step, seed)
        running = run_episode(question, engine, retriever, settings.agent, Sampling(1.0, seed=seed))
        group: list[Episode] = []
        if settings.reward.semantics == "otc" and settings.reward.otc.group:
            with GROUPS.rollout(str(row["uid"]), int(self.rollout_config.n)) as place:
                rollout = await running
                group = await place.others(rollout.episode)
        else:
            rollout = await running
        gold = json.loads(row["extra_info"].get("gold_paragraphs") or "[]")
        reward = score(rollout.episode, question, settings.reward, gold=gold, group=group)
        write_record(settings, step, row, rollout, reward)
        with_log_probs = bool(sampling_params.get("logprobs"))
        return loop_output(rollout, reward, versions, with_log_probs, self.tokenizer, settings.mask_observations)


def loop_output(
    rollout: Rollout,
    reward: RewardBreakdown,
    versions: dict[str, Any],
    with_log_probs: bool,
    tokenizer: Any,
    mask_observations: bool = True,
) -> TokenRewardedOutput:
    """The rollout in veRL's form, its reward at its tokens. A failed episode is one masked token without reward."""
    ids, mask, log_probs = rollout.response_ids, rollout.trains_on, rollout.log_probs
    failed = rollout.episode.stop_reason.is_infrastructure_failure
    if failed or not ids:
        ids, mask, log_probs, rewards = [tokenizer.eos_token_id], [0], [0.0], [0.0]
    else:
        rewards = rewards_of_tokens(rollout, reward)
        mask = mask if mask_observations else [1] * len(ids)
    turns = rollout.episode.turns
    return TokenRewardedOutput(
        prompt_ids=rollout.prompt_ids,
        response_ids=ids,
        response_mask=mask,
        response_logprobs=log_probs if with_log_probs else None,
        reward_score=sum(rewards),
        token_rewards=rewards,
        num_turns=len(turns),
        metrics=AgentLoopMetrics(
            generate_sequences=sum(turn.generate_seconds for turn in turns),
            tool_calls=sum(turn.search_seconds for turn in turns),
        ),
        extra_fields={**versions, "turn_scores": [], "tool_rewards": []},
    )


def question_of(text: str) -> Question:
    """A Question out of the JSON that write_data put into a row."""
    values = json.loads(text)
    for key in ("golden_answers", "supporting_titles", "supporting_ids"):
        values[key] = tuple(values[key])
    return Question(**{**values, "structure": Structure(values["structure"])})


def episode_seed(seed: int, step: int, row: int, session: int) -> int:
    """A seed of its own for every episode of a run: the same run draws the same tokens from the same weights."""
    return (((seed * 1_000_003 + step) * 1_000_003 + row) * 1_009 + session) % 2**61


@cache
def read_settings(path: str) -> LoopSettings:
    """The arm's settings, read once in each process."""
    return LoopSettings.model_validate_json(Path(path).read_text(encoding="utf-8"))


def retriever_for(settings: LoopSettings, question: Question, step: int, seed: int) -> Retriever:
    """What an episode searches with: the index, or the simulator with the share of noise of this training step."""
    if settings.simulator is None:
        return open_retriever(settings)
    noise = noise_share(step, settings.steps, settings.simulator)
    return SimulatedRetriever(open_simulator(settings.simulator), question, settings.simulator, noise, seed)


@cache
def open_simulator(simulator: SimulatorConfig) -> OpenAIClient:
    """The client of the simulating model; opened once in each process."""
    assert simulator.server is not None  # verl/job.py has put it there
    return OpenAIClient(simulator.server, "the simulated search", "training.simulator.server")


@cache
def open_retriever(settings: LoopSettings) -> Retriever:
    """The index in this process, or a client of the retriever server; opened once in each process."""
    if settings.retriever_url:
        from parallelsearch.retrieval.serving.client import HttpRetriever

        return HttpRetriever(settings.retriever_url)
    from parallelsearch.retrieval import opening

    return opening.open_retriever(Path(settings.index))


def write_record(
    settings: LoopSettings, step: int, row: dict[str, Any], rollout: Rollout, reward: RewardBreakdown
) -> None:
    """Appends what the training curves need of one episode to this process's file of records."""
    episode = rollout.episode
    record = {
        "step": step,
        "episode": f"{row.get('uid', '')}/{row.get('session_id', 0)}",
        "qid": episode.question.qid,
        "structure": episode.question.structure,
        "reward": reward.as_dict(),
        "em": exact_match(episode.answer, episode.question.golden_answers),
        "decomposed": episode.decomposed,
        "llm_calls": episode.llm_calls,
        "searches": episode.searches,
        "well_formed": episode.well_formed,
        "tagged": any(has_tag(turn.text, TAG_SETS[settings.agent.tags]) for turn in episode.turns),
        "stop_reason": episode.stop_reason,
        "log_prob": sum(rollout.log_probs),
        "model_tokens": sum(rollout.trains_on),
        "response_tokens": len(rollout.response_ids),
        "seconds": episode.seconds,
        "error": episode.error,
    }
    with (Path(settings.records) / f"{os.uname().nodename}-{os.getpid()}.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(record) + "\n")
