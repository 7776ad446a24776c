"""The episode loop: from a question to an Episode and the token ids that reinforcement learning needs.

Training and evaluation both run this loop. Text of the model is never tokenised again: a response consists of the very
ids the engine returned, and of observations that are encoded once, when they are appended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from parallelsearch.agent.observation import Observation, render_observation
from parallelsearch.agent.prompts import prompt_text
from parallelsearch.agent.protocol import CORRECTION, STOP_STRINGS, ParsedGeneration, is_well_formed, parse_generation
from parallelsearch.agent.steps import failure_sentence, generate, generation_text, search
from parallelsearch.agent.tags import TAG_SETS
from parallelsearch.config import AgentConfig
from parallelsearch.engines.engine import Engine, Generation, Sampling
from parallelsearch.records import Action, Episode, Question, StopReason, SubQuery, Turn

if TYPE_CHECKING:
    from parallelsearch.retrieval.retriever import Retriever


@dataclass(frozen=True, slots=True)
class Rollout:
    """An episode as token ids. The last three lists have one entry for each response token.

    `trains_on` is 1 on tokens of the model and 0 on tokens of observations, whose `log_probs` are 0.0.
    """

    episode: Episode
    prompt_ids: list[int]
    response_ids: list[int]
    trains_on: list[int]
    log_probs: list[float]


@dataclass(slots=True)
class _Response:
    """The response while it grows."""

    limit: int
    token_ids: list[int] = field(default_factory=list)
    trains_on: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)

    @property
    def room(self) -> int:
        return self.limit - len(self.token_ids)

    def add_generation(self, generation: Generation) -> None:
        self.token_ids += generation.token_ids
        self.trains_on += [1] * len(generation.token_ids)
        self.log_probs += generation.log_probs

    def add_observation(self, token_ids: Sequence[int]) -> None:
        self.token_ids += token_ids
        self.trains_on += [0] * len(token_ids)
        self.log_probs += [0.0] * len(token_ids)


async def run_episode(
    question: Question,
    engine: Engine,
    retriever: Retriever,
    agent: AgentConfig,
    sampling: Sampling,
    on_turn: Callable[[Turn], None] = lambda turn: None,
) -> Rollout:
    """Lets the agent answer `question` within the limits of `agent`; `on_turn` sees each complete turn.

    A failure of the engine or the retriever ends the episode with the matching stop_reason and its text in
    Episode.error; it is never raised and never shown to the model. The response never exceeds
    agent.max_response_tokens: an observation that would not fit ends the episode (token_limit). Where
    agent.max_search_turns is 0, a search is an invalid action and ends the episode.
    """
    started = time.perf_counter()
    tokenizer = engine.tokenizer
    prompt = prompt_text(agent.prompt, question.text, tokenizer)
    prompt_ids = tokenizer.encode(prompt, add_special_tokens=False)
    response = _Response(agent.max_response_tokens)
    turns: list[Turn] = []
    if len(prompt_ids) > agent.max_prompt_tokens:
        stop, error = (
            StopReason.TOKEN_LIMIT,
            (
                f"The prompt of question {question.qid} has {len(prompt_ids)} tokens, more than"
                f" agent.max_prompt_tokens = {agent.max_prompt_tokens}."
            ),
        )
    else:
        stop, error = await _run_turns(prompt_ids, response, turns, engine, retriever, agent, sampling, on_turn)
    answered = stop is StopReason.ANSWERED
    episode = Episode(
        question=question,
        turns=tuple(turns),
        answer=turns[-1].answer if answered else None,
        stop_reason=stop,
        well_formed=answered and is_well_formed(turns, TAG_SETS[agent.tags]),
        prompt=prompt,
        prompt_tokens=len(prompt_ids),
        seconds=time.perf_counter() - started,
        error=error,
    )
    return Rollout(episode, prompt_ids, response.token_ids, response.trains_on, response.log_probs)


async def _run_turns(
    prompt_ids: list[int],
    response: _Response,
    turns: list[Turn],
    engine: Engine,
    retriever: Retriever,
    agent: AgentConfig,
    sampling: Sampling,
    on_turn: Callable[[Turn], None],
) -> tuple[StopReason, str]:
    """Appends to `response` and `turns` until the episode ends; returns why, and the error text of a failure."""
    tags = TAG_SETS[agent.tags]
    while True:
        budget = min(agent.max_generation_tokens, response.room)
        if budget < 1:
            return StopReason.TOKEN_LIMIT, ""
        try:
            started = time.perf_counter()
            prefix = prompt_ids + response.token_ids
            generation = await generate(engine, prefix, budget, sampling, len(turns), STOP_STRINGS)
        except Exception as failure:
            return StopReason.ENGINE_ERROR, failure_sentence(failure)
        response.add_generation(generation)
        text = generation_text(generation, engine.tokenizer)
        parsed = parse_generation(text, tags)
        if parsed.action is Action.SEARCH and not agent.max_search_turns:
            parsed = replace(parsed, action=Action.INVALID, sub_queries=())
        turn = Turn(
            text=text,
            action=parsed.action,
            sub_queries=tuple(SubQuery(query) for query in parsed.sub_queries[: agent.max_sub_queries]),
            answer=parsed.answer,
            model_tokens=len(generation.token_ids),
            generate_seconds=time.perf_counter() - started,
        )
        turns.append(turn)
        stop = _stop_after(parsed, generation, budget, turns, agent)
        if stop is not None:
            on_turn(turn)
            return stop, ""
        if parsed.action is Action.SEARCH:
            try:
                texts = [sub_query.text for sub_query in turn.sub_queries]
                found, seconds = await search(texts, retriever, agent.top_k)
            except Exception as failure:
                return StopReason.RETRIEVER_ERROR, failure_sentence(failure)
            turns[-1] = replace(turn, sub_queries=found, search_seconds=seconds)
            observation = render_observation(found, agent.max_sub_query_result_tokens, engine.tokenizer, tags)
        else:
            observation = Observation(CORRECTION, engine.tokenizer.encode(CORRECTION, add_special_tokens=False), ())
        if len(observation.token_ids) > response.room:
            return StopReason.TOKEN_LIMIT, ""
        response.add_observation(observation.token_ids)
        turns[-1] = replace(
            turns[-1],
            sub_queries=tuple(
                replace(sub_query, shown=shown)
                for sub_query, shown in zip(turns[-1].sub_queries, observation.shown, strict=True)
            ),
            observation=observation.text,
            observation_tokens=len(observation.token_ids),
        )
        on_turn(turns[-1])


def _stop_after(
    parsed: ParsedGeneration, generation: Generation, budget: int, turns: Sequence[Turn], agent: AgentConfig
) -> StopReason | None:
    """Why the episode ends after its latest generation; None when it goes on."""
    if parsed.action is Action.ANSWER:
        return StopReason.ANSWERED
    if parsed.action is Action.INVALID:
        if generation.finish_reason == "length" and budget < agent.max_generation_tokens:
            return StopReason.TOKEN_LIMIT
        if agent.on_invalid == "stop" or not agent.max_search_turns:
            return StopReason.INVALID_ACTION
    # Corrected turns count: an episode has at most max_search_turns + 1 generations.
    return StopReason.TURN_LIMIT if len(turns) > agent.max_search_turns else None
