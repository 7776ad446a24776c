"""Demonstrations for the warm start: transcripts that answer a drafted question, in parallel or one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from parallelsearch.agent.protocol import render_hit, render_information
from parallelsearch.agent.tags import SEARCH_R1, Tags
from parallelsearch.geoworld.facts import World
from parallelsearch.geoworld.fiction import Fiction
from parallelsearch.geoworld.passages import city_text, country_text
from parallelsearch.geoworld.questions import TYPE_SHARES, draw
from parallelsearch.geoworld.templates import NUMBERS, ORDINALS, Draft
from parallelsearch.records import Hit, Passage

GOLD_RANK_ONE = 0.8  # share of look-ups whose passage stands first among those shown; it stands second otherwise


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a demonstration; the loss covers it only when the policy would have generated it."""

    text: str
    trains_on: bool


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A question with the pieces that follow its prompt, in order."""

    draft: Draft
    parallel: bool
    segments: tuple[Segment, ...]


def demonstrations(
    real: World,
    parallel_share: float,
    top_k: int,
    rng: random.Random,
    type_shares: Mapping[str, float] = TYPE_SHARES,
    tags: Tags = SEARCH_R1,
) -> Iterator[Demonstration]:
    """Endless demonstrations over fictional worlds in the likeness of `real`, question types in `type_shares`.

    Where a level of look-ups has more than one, a share of `parallel_share` searches them in one turn, the rest one by
    one.
    """
    fiction = Fiction(real)
    types, shares = list(type_shares), list(type_shares.values())
    while True:
        world = fiction.draw(rng)
        for _ in range(4):
            draft = draw(world, rng, rng.choices(types, shares)[0])
            if draft is None:  # all its countries may lie on one continent, say
                continue
            parallel = rng.random() < parallel_share and any(len(level) > 1 for level in draft.levels)
            yield Demonstration(draft, parallel, segments(draft, world, parallel, top_k, rng, tags))


def segments(
    draft: Draft, world: World, parallel: bool, top_k: int, rng: random.Random, tags: Tags = SEARCH_R1
) -> tuple[Segment, ...]:
    """The pieces of one demonstration: a level's look-ups in one search (`parallel`) or one search each.

    A thought notes the facts found on the current level and which look-ups come next, nothing else: every name it
    repeated would be one more chance for a small model to miscopy.
    """
    pieces: list[Segment] = []
    known = ""
    for level in draft.levels:
        facts: list[str] = []
        for step in [level] if parallel else [(look_up,) for look_up in level]:
            thought = " ".join(filter(None, (known, _sentence(facts), _intention(len(step), len(facts), len(level)))))
            query = " ## ".join(look_up.title for look_up in step)
            pieces.append(Segment(f"<think> {thought}</think>\n<search> {query}</search>", True))
            results = [(look_up.title, _rendered_hits(look_up.title, world, top_k, rng, tags)) for look_up in step]
            pieces.append(Segment(render_information(results, tags), False))
            facts += [look_up.fact for look_up in step]
        known = _sentence(facts)
    pieces.append(Segment(f"<think>{given_facts(draft)}{conclusion(draft, tags)}", True))
    return tuple(pieces)


def _intention(next_ones: int, known: int, all_of_them: int) -> str:
    """What a search is for; where a level is searched one by one it counts, or a small model loses its place."""
    if next_ones < all_of_them:
        return f"I need the {ORDINALS[known]} of {NUMBERS[all_of_them]} facts."
    return f"I need {NUMBERS[next_ones]} fact{'s' if next_ones > 1 else ''}."


def given_facts(draft: Draft) -> str:
    """How the last thought begins: the facts of the last level."""
    return " " + " and ".join(look_up.fact for look_up in draft.levels[-1])


def conclusion(draft: Draft, tags: Tags = SEARCH_R1) -> str:
    """How an episode goes on after `given_facts`: what follows from them, where they are compared, and the answer.

    The conclusion in words comes before the answer, since which fact is the largest and which name stands at that
    place of the question are two steps, each of which a small model learns.
    """
    concluded = f": {draft.conclusion}" if draft.conclusion else ""
    return f"{concluded}.</think>\n<answer> {tags.written_answer(draft.answer)}</answer>"


def _sentence(facts: list[str]) -> str:
    return f"{' and '.join(facts)}." if facts else ""


def _rendered_hits(title: str, world: World, top_k: int, rng: random.Random, tags: Tags) -> str:
    kin = world.countries if title in world.countries else world.cities
    others = rng.sample([name for name in kin if name != title], min(top_k - 1, len(kin) - 1))
    names = [title, *others] if rng.random() < GOLD_RANK_ONE or not others else [others[0], title, *others[1:]]
    hits = (Hit(Passage(0, name, _text(name, world)), 0.0) for name in names)
    return "".join(render_hit(rank, hit, tags) for rank, hit in enumerate(hits, 1))


def _text(name: str, world: World) -> str:
    return country_text(world.countries[name]) if name in world.countries else city_text(world.cities[name])
