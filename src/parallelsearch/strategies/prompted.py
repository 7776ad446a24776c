"""Strategies that need no training: each generation has a prompt of its own, written around what was found so far.

Their episodes have the same turns as a trained agent's. A search that the strategy makes by itself, before the model
has said anything, is a turn without a generation; it counts as a search and not as an LLM call. An episode is
well-formed when an answer was found where the prompt asked for it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from parallelsearch.agent.engine import Engine, Sampling
from parallelsearch.agent.observation import passages_within
from parallelsearch.agent.prompts import chat_prompt
from parallelsearch.agent.steps import failure_sentence, generate, generation_text, search
from parallelsearch.config import AgentConfig
from parallelsearch.records import Action, Episode, Question, StopReason, Turn

if TYPE_CHECKING:
    from parallelsearch.retrieval.retriever import Retriever


class _Ended(Exception):
    """The episode is over before an answer: `reason`, and what Episode.error says."""

    def __init__(self, reason: StopReason, error: str) -> None:
        super().__init__(error)
        self.reason, self.error = reason, error


class PromptedEpisode:
    """An episode while it grows. `passages` are the lines of all passages found so far, each once."""

    def __init__(
        self,
        question: Question,
        engine: Engine,
        retriever: Retriever,
        agent: AgentConfig,
        sampling: Sampling,
        on_turn: Callable[[Turn], None],
    ) -> None:
        self.question = question
        self.agent = agent
        self.passages: list[str] = []
        self._engine, self._retriever, self._sampling, self._on_turn = engine, retriever, sampling, on_turn
        self._turns: list[Turn] = []
        self._open = False  # the last turn is a generation of which it is not known yet what it led to
        self._generations = 0
        self._prompt = ""
        self._prompt_tokens = 0

    async def generate(self, message: str, stop: Sequence[str] = ()) -> str:
        """What the model replies to the user message `message`, without white space around it.

        A message whose prompt exceeds agent.max_prompt_tokens ends the episode (token_limit).
        """
        tokenizer = self._engine.tokenizer
        prompt = chat_prompt(message, tokenizer)
        token_ids = tokenizer.encode(prompt, add_special_tokens=False)
        if not self._generations:
            self._prompt, self._prompt_tokens = prompt, len(token_ids)
        limit = self.agent.max_prompt_tokens
        if len(token_ids) > limit:
            what = f"prompt {self._generations + 1} of question {self.question.qid} has {len(token_ids)} tokens"
            raise _Ended(StopReason.TOKEN_LIMIT, f"The {what}, more than agent.max_prompt_tokens = {limit}.")
        started = time.perf_counter()
        budget = self.agent.max_generation_tokens
        try:
            made = await generate(self._engine, token_ids, budget, self._sampling, self._generations, stop)
        except Exception as failure:
            raise _Ended(StopReason.ENGINE_ERROR, failure_sentence(failure)) from failure
        self._generations += 1
        text = generation_text(made, tokenizer)
        seconds = time.perf_counter() - started
        self._close()
        self._turns.append(
            Turn(text, Action.INVALID, model_tokens=len(made.token_ids), generate_seconds=seconds),
        )
        self._open = True
        return text.strip()

    async def look_up(self, *queries: str) -> None:
        """Searches all `queries` at once; the new passages join `passages`."""
        try:
            found, seconds = await search(queries, self._retriever, self.agent.top_k)
        except Exception as failure:
            raise _Ended(StopReason.RETRIEVER_ERROR, failure_sentence(failure)) from failure
        shown, observation = [], []
        for sub_query in found:
            budget = self.agent.max_sub_query_result_tokens
            lines = passages_within(sub_query.hits, budget, self._engine.tokenizer)
            observation += lines
            shown.append(replace(sub_query, shown=len(lines)))
        self.passages += [line for line in dict.fromkeys(map(_without_rank, observation)) if line not in self.passages]
        text = "".join(observation)
        turn = self._turns.pop() if self._open else Turn("", Action.SEARCH)
        self._turns.append(
            replace(
                turn,
                action=Action.SEARCH,
                sub_queries=tuple(shown),
                observation=text,
                observation_tokens=len(self._engine.tokenizer.encode(text, add_special_tokens=False)),
                search_seconds=seconds,
            )
        )
        self._open = True
        self._close()

    @property
    def searches(self) -> int:
        """Searches made so far."""
        return sum(turn.action is Action.SEARCH for turn in self._turns)

    @property
    def passage_text(self) -> str:
        """`passages`, numbered, a line each."""
        return "".join(f"Doc {number}{line}" for number, line in enumerate(self.passages, 1))

    def finished(self, answer: str | None, stop: StopReason, error: str, seconds: float) -> Episode:
        """The episode; the last generation becomes the answer where there is one."""
        if answer is not None:
            self._turns[-1] = replace(self._turns[-1], action=Action.ANSWER, answer=answer)
        self._close()
        return Episode(
            question=self.question,
            turns=tuple(self._turns),
            answer=answer,
            stop_reason=stop,
            well_formed=answer is not None,
            prompt=self._prompt,
            prompt_tokens=self._prompt_tokens,
            seconds=seconds,
            error=error,
        )

    def _close(self) -> None:
        if self._open:
            self._on_turn(self._turns[-1])
        self._open = False


async def run_prompted(steps: Callable[[PromptedEpisode], Awaitable[str | None]], episode: PromptedEpisode) -> Episode:
    """Lets `steps` answer; None, where the reply holds no answer, ends the episode as an invalid action.

    Failures of engine and retriever are the episode's stop_reason, as in agent.episode.run_episode.
    """
    started = time.perf_counter()
    answer, error = None, ""
    try:
        answer = await steps(episode)
        stop = StopReason.INVALID_ACTION if answer is None else StopReason.ANSWERED
    except _Ended as end:
        stop, error = end.reason, end.error
    return episode.finished(answer, stop, error, time.perf_counter() - started)


def _without_rank(line: str) -> str:
    """'Doc 2(Title: Oslo) ...' -> '(Title: Oslo) ...'."""
    return line[line.index("(") :]
