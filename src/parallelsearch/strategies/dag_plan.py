"""A plan as a directed acyclic graph, after TURA (Zhao et al. 2025): plan once, look up whatever is ready, then answer.

One call plans (strategies/plan.py has the form and the rules). A sub-question is ready the moment the answers that it
waits for are there, whatever the others are doing; sub-questions that become ready at the same moment are looked up in
one search (at most agent.max_sub_queries in one), and each is then answered by a call of its own. A last call answers
the question from the sub-questions' answers. A plan of n sub-questions takes n + 2 calls and at most n searches.

The episode's turns are in an order that does not depend on which call was faster: the plan (a step); then for each
search, in the order in which they were made, the search (a turn without a generation) and the answers to its
sub-questions (steps) by number; then the answer. So two independent look-ups of one moment are one search turn of two
sub-queries, a decomposed search, and look-ups of which one waits for the other are not. Calls and searches overlap in
time: the seconds of the turns add up to more than those of the episode.

A plan that breaks a rule, and a sub-question whose reply is empty, end the episode as an invalid action; a failure of
engine or retriever ends it at once, with the turns that were complete by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from parallelsearch.agent.protocol import inert
from parallelsearch.records import Action, StopReason, Turn
from parallelsearch.strategies.plan import Plan, PlanFault, parse_plan
from parallelsearch.strategies.prompted import EpisodeEnded, PromptedEpisode
from parallelsearch.strategies.rag import PROMPT as READING
from parallelsearch.strategies.reading import short_answer

PLANNING = (
    "Do not answer the question. Plan how to look up what it asks: write the sub-questions that have to be looked up,"
    " each on a line of its own as NUMBER: sub-question. Each must be understandable alone. Where a sub-question needs"
    " the answer to another one, write # and its number in place of that answer. Write at most {size} lines and nothing"
    " else.\n\nAn example:\nQuestion: Is the birthplace of the composer of Fidelio larger than Salzburg?\n"
    "1: Who composed Fidelio?\n2: Where was #1 born?\n3: How many inhabitants does #2 have?\n"
    "4: How many inhabitants does Salzburg have?\n\nQuestion: {question}\n"
)
ANSWERING = (
    "Answer the question with the help of what was found out about its parts. Give only the answer, in a few words,"
    " without any explanation.\n\n{findings}\nQuestion: {question}\n"
)


async def dag_plan(episode: PromptedEpisode) -> str | None:
    """The plan, its look-ups as soon as each is ready, the answer."""
    agent, question = episode.agent, episode.asked
    reply = await episode.generate(PLANNING.format(size=agent.max_plan_questions, question=question), kind=Action.STEP)
    try:
        plan = parse_plan(reply, agent.max_plan_questions, agent.max_search_turns)
    except PlanFault as fault:
        raise EpisodeEnded(StopReason.INVALID_ACTION, str(fault)) from fault
    run = _PlanRun(plan, episode)
    try:
        await run.finish()
    finally:
        episode.record(run.turns)
    findings = "".join(f"{run.asked[number]} {answer}\n" for number, answer in sorted(run.answers.items()))
    return short_answer(await episode.generate(ANSWERING.format(findings=findings, question=question)))


_SEARCH = -1  # sorts a search before the answers to its sub-questions, whose numbers begin at 0


class _PlanRun:
    """A plan while it is carried out: the sub-questions as they were asked, and their answers so far, by number."""

    def __init__(self, plan: Plan, episode: PromptedEpisode) -> None:
        self.plan = plan
        self.asked: dict[int, str] = {}
        self.answers: dict[int, str] = {}
        self._episode = episode
        self._order = {number: place for place, number in enumerate(plan.questions, 1)}
        self._searches = 0
        self._turns: dict[tuple[int, int], Turn] = {}  # by number of the search and of the sub-question, or _SEARCH

    @property
    def turns(self) -> list[Turn]:
        """The turns that are complete, in the order of the module's docstring."""
        return [self._turns[key] for key in sorted(self._turns)]

    async def finish(self) -> None:
        """Answers every sub-question. Raises EpisodeEnded as soon as one cannot be answered; nothing runs on then."""
        sorter = self.plan.sorter()
        size = self._episode.agent.max_sub_queries
        running: list[asyncio.Task[int]] = []
        started: list[asyncio.Task[Any]] = []
        try:
            while sorter.is_active():
                ready = sorted(sorter.get_ready())
                for group in (ready[start : start + size] for start in range(0, len(ready), size)):
                    found = asyncio.create_task(self._look_up(group))
                    running += (answers := [asyncio.create_task(self._answer(number, found)) for number in group])
                    started += [found, *answers]
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                ended = [task for task in running if task in done]
                running = [task for task in running if task not in done]
                sorter.done(*(task.result() for task in ended))
        finally:
            for task in started:
                task.cancel()
            await asyncio.gather(*started, return_exceptions=True)

    async def _look_up(self, numbers: Sequence[int]) -> tuple[int, dict[int, str]]:
        """One search for some sub-questions; its number, and the passages of each sub-question, a line a passage."""
        self._searches += 1
        search = self._searches
        for number in numbers:
            self.asked[number] = self.plan.filled(number, self.answers)
        turn, passages = await self._episode.find([self.asked[number] for number in numbers])
        self._keep(search, _SEARCH, turn)
        return search, dict(zip(numbers, passages, strict=True))

    async def _answer(self, number: int, found: asyncio.Task[tuple[int, dict[int, str]]]) -> int:
        """Answers one sub-question from the search that looked it up, and returns its number."""
        search, passages = await found
        message = READING.format(passages=passages[number], question=inert(self.asked[number]))
        turn = await self._episode.ask(message, self._order[number])
        self._keep(search, number, replace(turn, action=Action.STEP))
        answer = short_answer(turn.text)
        if answer is None:
            raise EpisodeEnded(StopReason.INVALID_ACTION, f"Sub-question {number} of the plan got no answer.")
        self.answers[number] = answer
        return number

    def _keep(self, search: int, number: int, turn: Turn) -> None:
        self._turns[search, number] = turn
        self._episode.on_turn(turn)
