"""Strategies that need no training: each generation has a prompt of its own, written around what was found so far.

Their episodes have the same turns as a trained agent's. A search that the strategy makes by itself, before the model
has said anything, is a turn without a generation; it counts as a search and not as an LLM call. An episode is
well-formed when an answer was found where the prompt asked for it.

Passages reach a prompt as lines of their own whose tags and control tokens are defused, and answers, queries and plans
are read from what the model generated, never from a prompt: a passage cannot pose as an action.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from parallelsearch.agent.observation import documents, passages_within
from parallelsearch.agent.prompts import chat_prompt
from parallelsearch.agent.protocol import inert
from parallelsearch.agent.steps import failure_sentence, generate, generation_text, search
from parallelsearch.config import AgentConfig
from parallelsearch.engines.engine import Engine, Sampling
from parallelsearch.records import Action, Episode, Question, StopReason, SubQuery, Turn

if TYPE_CHECKING:
    from parallelsearch.retrieval.retriever import Retriever


class EpisodeEnded(Exception):
    """The episode is over before an answer: `reason`, and what Episode.error says."""

    def __init__(self, reason: StopReason, error: str) -> None:
        super().__init__(error)
        self.reason, self.error = reason, error


class PromptedEpisode:
    """An episode while it grows. `passages` are the lines of all passages found so far, each once.

    Most strategies call `generate` and `look_up` in turns. `ask` and `find` do the same without a trace in the episode,
    for strategies that do several things at once and then `record` the turns in an order of their own.
    """

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
        self.on_turn = on_turn
        self._engine, self._retriever, self._sampling = engine, retriever, sampling
        self._turns: list[Turn] = []
        self._open = False  # it is not known yet what the last turn, a generation, led to
        self._generations = 0
        self._prompt = ""
        self._prompt_tokens = 0

    async def generate(
        self, message: str, *, reply_so_far: str = "", stop: Sequence[str] = (), kind: Action = Action.INVALID
    ) -> str:
        """What the model replies to the user message `message`, after `reply_so_far`, without white space around it.

        `kind` is what the generation counts as when neither a search nor the answer comes of it. A prompt of more than
        agent.max_prompt_tokens ends the episode (token_limit).
        """
        turn = await self.ask(message, self._generations, reply_so_far=reply_so_far, stop=stop)
        self._close()
        self._turns.append(replace(turn, action=kind))
        self._open = True
        return turn.text.strip()

    async def ask(self, message: str, number: int, *, reply_so_far: str = "", stop: Sequence[str] = ()) -> Turn:
        """Generation `number` of the episode (its seed depends on it), as a turn that is not in the episode yet."""
        tokenizer = self._engine.tokenizer
        prompt = chat_prompt(message, tokenizer) + reply_so_far
        token_ids = tokenizer.encode(prompt, add_special_tokens=False)
        if not self._prompt:
            self._prompt, self._prompt_tokens = prompt, len(token_ids)
        limit = self.agent.max_prompt_tokens
        if len(token_ids) > limit:
            what = f"prompt {number + 1} of question {self.question.qid} has {len(token_ids)} tokens"
            raise EpisodeEnded(StopReason.TOKEN_LIMIT, f"The {what}, more than agent.max_prompt_tokens = {limit}.")
        started = time.perf_counter()
        budget = self.agent.max_generation_tokens
        try:
            made = await generate(self._engine, token_ids, budget, self._sampling, number, stop)
        except Exception as failure:
            raise EpisodeEnded(StopReason.ENGINE_ERROR, failure_sentence(failure)) from failure
        self._generations += 1
        text = generation_text(made, tokenizer)
        seconds = time.perf_counter() - started
        return Turn(text, Action.INVALID, model_tokens=len(made.token_ids), generate_seconds=seconds)

    async def look_up(self, *queries: str, max_document_chars: int | None = None) -> str:
        """Searches all `queries` at once; the new passages join `passages`. Returns what was found, a line a passage.

        The last generation, if nothing came of it yet, becomes the turn of this search. See `find` for the limits.
        """
        found, _ = await self.find(queries, max_document_chars=max_document_chars)
        lines = map(_without_rank, found.observation.splitlines(keepends=True))
        self.passages += [line for line in dict.fromkeys(lines) if line and line not in self.passages]
        if self._open:
            made = self._turns.pop()
            found = replace(
                found, text=made.text, model_tokens=made.model_tokens, generate_seconds=made.generate_seconds
            )
        self._turns.append(found)
        self._open = True
        self._close()
        return found.observation

    async def find(self, queries: Sequence[str], *, max_document_chars: int | None = None) -> tuple[Turn, list[str]]:
        """A search for all `queries` at once, as a turn that is not in the episode yet, and what each query found.

        What was found has a line for each passage: of each query as many as fit into max_sub_query_result_tokens, or
        with `max_document_chars` all of them, each cut to so many characters of text.
        """
        try:
            sub_queries, seconds = await search(queries, self._retriever, self.agent.top_k)
        except Exception as failure:
            raise EpisodeEnded(StopReason.RETRIEVER_ERROR, failure_sentence(failure)) from failure
        lines = [self._lines(sub_query, max_document_chars) for sub_query in sub_queries]
        texts = ["".join(kept) for kept in lines]
        turn = Turn(
            text="",
            action=Action.SEARCH,
            sub_queries=tuple(
                replace(sub_query, shown=len(kept)) for sub_query, kept in zip(sub_queries, lines, strict=True)
            ),
            observation="".join(texts),
            observation_tokens=self._tokens("".join(texts)),
            search_seconds=seconds,
        )
        return turn, texts

    def observe(self, text: str) -> None:
        """`text` is what the model was shown after its last generation, of which nothing else came."""
        self._turns[-1] = replace(self._turns[-1], observation=text, observation_tokens=self._tokens(text))

    def record(self, turns: Sequence[Turn]) -> None:
        """Puts turns made by `ask` and `find` into the episode; whoever made them has called `on_turn`."""
        self._close()
        self._turns += turns

    @property
    def asked(self) -> str:
        """The question as it stands in a prompt: without tags and control tokens."""
        return inert(self.question.text)

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

    def _lines(self, sub_query: SubQuery, max_document_chars: int | None) -> list[str]:
        if max_document_chars is not None:
            return documents(sub_query.hits, max_document_chars)
        return passages_within(sub_query.hits, self.agent.max_sub_query_result_tokens, self._engine.tokenizer)

    def _tokens(self, text: str) -> int:
        return len(self._engine.tokenizer.encode(text, add_special_tokens=False))

    def _close(self) -> None:
        if self._open:
            self.on_turn(self._turns[-1])
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
    except EpisodeEnded as end:
        stop, error = end.reason, end.error
    return episode.finished(answer, stop, error, time.perf_counter() - started)


def _without_rank(line: str) -> str:
    """'Doc 2(Title: Oslo) ...' -> '(Title: Oslo) ...'; '' of a line that was cut before its title."""
    _, bracket, rest = line.partition("(")
    return bracket + rest
