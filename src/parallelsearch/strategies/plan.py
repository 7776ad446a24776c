"""A plan: numbered sub-questions, some of which hold the answers to others as placeholders. Parsing and its rules.

    1: When was the Rhine bridge in Cologne opened?
    2: Who designed it?
    3: In which year was #2 born?

A line `NUMBER: sub-question` is a sub-question (a full stop or a bracket will do for the colon), `#NUMBER` in it the
answer to another one; all other lines are ignored.
A plan that breaks a rule (PlanFault) is not carried out at all, since what it meant cannot be told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

_LINE = re.compile(r"^[ \t]*(\d{1,4})[ \t]*(?::|[.)](?=[ \t]))[ \t]*(\S.*?)[ \t\r]*$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"#(\d{1,4})")


class PlanFault(ValueError):
    """What is wrong with a plan, in one sentence."""


class Plan:
    """A plan that can be carried out: `questions` by number in ascending order, and which numbers each waits for."""

    def __init__(self, questions: Mapping[int, str]) -> None:
        self.questions = dict(sorted(questions.items()))
        self.parents = {number: _references(text) for number, text in self.questions.items()}

    def sorter(self) -> TopologicalSorter[int]:
        """Gives every sub-question out when those it waits for are done. Raises CycleError."""
        sorter = TopologicalSorter(self.parents)
        sorter.prepare()
        return sorter

    @property
    def levels(self) -> int:
        """Sub-questions on the longest chain of those that wait for one another. Raises CycleError."""
        level: dict[int, int] = {}
        for number in TopologicalSorter(self.parents).static_order():
            level[number] = 1 + max((level[parent] for parent in self.parents[number]), default=0)
        return max(level.values())

    def filled(self, number: int, answers: Mapping[int, str]) -> str:
        """A sub-question with the answers it waited for in place of their placeholders."""
        return _PLACEHOLDER.sub(lambda found: answers[int(found.group(1))], self.questions[number])


def parse_plan(text: str, max_questions: int, max_levels: int) -> Plan:
    """The plan in a reply. Raises PlanFault for one that is empty, too large, too deep or without a clear order."""
    lines = [(int(number), question) for number, question in _LINE.findall(text)]
    if not lines:
        raise PlanFault("The plan has no line of the form 'NUMBER: sub-question'.")
    if len(lines) > max_questions:
        raise PlanFault(
            f"The plan has {len(lines)} sub-questions, more than agent.max_plan_questions = {max_questions}."
        )
    numbers = [number for number, _ in lines]
    if twice := next((number for number in numbers if numbers.count(number) > 1), None):
        raise PlanFault(f"The plan has two sub-questions with the number {twice}.")
    plan = Plan(dict(lines))
    for number, parents in plan.parents.items():
        if number in parents:
            raise PlanFault(f"Sub-question {number} of the plan waits for its own answer.")
        if unknown := sorted(parents - plan.parents.keys()):
            raise PlanFault(f"Sub-question {number} of the plan waits for #{unknown[0]}, which is not in the plan.")
    try:
        levels = plan.levels
    except CycleError as error:
        circle = " -> ".join(map(str, error.args[1]))
        raise PlanFault(f"The plan's sub-questions wait for one another in a circle: {circle}.") from None
    if levels > max_levels:
        raise PlanFault(f"The plan is {levels} searches deep, more than agent.max_search_turns = {max_levels}.")
    return plan


def _references(question: str) -> frozenset[int]:
    return frozenset(int(number) for number in _PLACEHOLDER.findall(question))
