"""Rollouts that wait for each other: all of a prompt, none of another, and no failure leaves the rest waiting."""

from __future__ import annotations

import asyncio

import pytest

from parallelsearch.training.verl.rollout_groups import RolloutGroups


def run(rollouts: list[tuple[str, str, float]], size: int = 3, timeout: float = 5.0):
    """Results of (prompt, name, seconds) rollouts; a name that begins with '!' fails."""
    groups: RolloutGroups[str] = RolloutGroups()

    async def rollout(prompt: str, name: str, seconds: float) -> list[str]:
        with groups.rollout(prompt, size) as place:
            await asyncio.sleep(seconds)
            if name.startswith("!"):
                raise RuntimeError(name)
            return sorted(await place.others(name))

    async def all_of_them():
        tasks = [asyncio.create_task(rollout(*one)) for one in rollouts]
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), timeout)

    return asyncio.run(all_of_them()), groups


def test_each_rollout_sees_the_others_of_its_prompt() -> None:
    results, groups = run(
        [("p", "a", 0.02), ("q", "x", 0.0), ("p", "b", 0.0), ("q", "y", 0.03), ("p", "c", 0.01), ("q", "z", 0.0)]
    )
    assert results == [["b", "c"], ["y", "z"], ["a", "c"], ["x", "z"], ["a", "b"], ["x", "y"]]
    assert not groups._groups  # nothing is kept of a finished group


@pytest.mark.parametrize("slowest", ["a", "!b", "c"])
def test_a_failed_rollout_lets_the_others_go_on(slowest: str) -> None:
    results, groups = run([("p", name, 0.03 if name == slowest else 0.0) for name in ("a", "!b", "c")])
    assert results[0] == ["c"] and results[2] == ["a"]
    assert isinstance(results[1], RuntimeError)
    assert not groups._groups


def test_a_prompt_can_come_again() -> None:
    async def twice() -> list[list[str]]:
        groups: RolloutGroups[str] = RolloutGroups()
        seen = []
        for name in ("a", "b"):
            with groups.rollout("p", 1) as place:
                seen.append(await place.others(name))
        return seen

    assert asyncio.run(twice()) == [[], []]
