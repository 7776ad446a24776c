"""Rollouts of one prompt that wait for each other, so that a reward can compare them.

veRL gives each rollout its reward as soon as it is done, before the group is known, and hands an advantage estimator
nothing but rewards, masks and group names. But it runs all rollouts of a prompt as tasks of one event loop
(AgentLoopWorkerTQ._run_prompt), so that they can meet there. A rollout that ends with an exception leaves its group,
which then goes on without it; veRL drops that prompt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Group(Generic[T]):
    missing: int
    results: list[T] = field(default_factory=list)
    complete: asyncio.Event = field(default_factory=asyncio.Event)

    def leave(self) -> None:
        self.missing -= 1
        if self.missing == 0:
            self.complete.set()


@dataclass(slots=True)
class Place(Generic[T]):
    """One rollout's place in its group."""

    group: _Group[T]
    taken: bool = True

    async def others(self, result: T) -> list[T]:
        """Hands in this rollout's result; returns those of the others when all are there, or have failed."""
        self.group.results.append(result)
        self.taken = False
        self.group.leave()
        await self.group.complete.wait()
        return [other for other in self.group.results if other is not result]


class RolloutGroups(Generic[T]):
    """The groups of one process; a group exists from its first rollout to its last."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group[T]] = {}

    @contextmanager
    def rollout(self, prompt: str, size: int) -> Iterator[Place[T]]:
        """A place in the group of `size` rollouts that `prompt` names; left with the block, whatever ends it."""
        group = self._groups.setdefault(prompt, _Group(size))
        place = Place(group)
        try:
            yield place
        finally:
            if place.taken:
                group.leave()
            if group.complete.is_set():
                self._groups.pop(prompt, None)
