"""Exercises of single steps: many short decisions a row, where a demonstration has one among hundreds of tokens.

What a small model has to learn first is to copy (names), then to compare (numbers, kinds); from whole demonstrations
alone it needs many times as many tokens for either. Entities are invented, values lie around the real training facts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from parallelsearch.agent.protocol import render_hit
from parallelsearch.agent.tags import SEARCH_R1, Tags
from parallelsearch.geoworld.facts import World, population_text, rounded
from parallelsearch.geoworld.fiction import Fiction
from parallelsearch.geoworld.passages import country_text
from parallelsearch.geoworld.questions import draw
from parallelsearch.geoworld.templates import ORDINALS, PARTS, Draft, likeness, one_is_clearly_largest
from parallelsearch.records import Hit, Passage
from parallelsearch.training.warm_start.demonstrations import (
    Demonstration,
    Segment,
    conclusion,
    given_facts,
    segments,
)

COMPARISONS_A_ROW = 12
CHOICES_A_ROW = 8
NAMES_A_ROW = 8

Row = tuple[Segment, ...]


class Exercises:
    """Draws exercises in the likeness of `real`, in the words of demonstrations."""

    def __init__(self, real: World, tags: Tags = SEARCH_R1) -> None:
        self._fiction = Fiction(real)
        self._tags = tags
        self._populations = [city.population for city in real.cities.values()]
        self._populations += [country.population for country in real.countries.values()]
        continents = sorted({country.continent for country in real.countries.values()})
        self._kinds = (continents, ["north", "south"])

    def copying(self, rng: random.Random) -> Row:
        """A list of invented names, to be written once more."""
        text = ", ".join(self._fiction.names(rng, NAMES_A_ROW))
        return Segment(f"{text}.\n", False), Segment(f" {text}", True)

    def choosing(self, rng: random.Random) -> Row:
        """Lists of two to four names, from which the one at a given place is to be written."""
        row: list[Segment] = []
        for _ in range(CHOICES_A_ROW):
            names = self._fiction.names(rng, rng.choice(PARTS))
            place = rng.randrange(len(names))
            listed = f"{', '.join(names[:-1])} and {names[-1]}?\n<think> {ORDINALS[place]}.</think>\n<answer>"
            row += [Segment(listed, False), Segment(f" {names[place]}</answer>", True), Segment("\n", False)]
        return tuple(row)

    def comparing_numbers(self, rng: random.Random) -> Row:
        """Lists of two to four populations: which is the largest. Half of them are near each other."""
        return self._concluded(self._numbers, rng)

    def comparing_kinds(self, rng: random.Random) -> Row:
        """Lists of two to four continents or hemispheres: whether all are alike, which half of them are."""
        return self._concluded(self._alike, rng)

    def looking_up(self, rng: random.Random) -> Row:
        """An article of a country, and each of its facts asked for in turn."""
        world = self._fiction.draw(rng, countries=1, cities=0)
        (country,) = world.countries.values()
        facts = {
            "capital": country.capital,
            "currency": country.currency,
            "continent": country.continent,
            "number of borders": str(country.borders),
            "number of inhabitants": population_text(country.population),
        }
        row = [Segment(render_hit(1, Hit(Passage(0, country.name, country_text(country)), 0.0), self._tags), False)]
        for fact in rng.sample(list(facts), len(facts)):
            row.append(Segment(f"What is the {fact} of {country.name}?\n<think>", False))
            row += [Segment(f" {facts[fact]}.", True), Segment("</think>\n", False)]
        return tuple(row)

    def given(self, rng: random.Random) -> Iterator[Demonstration]:
        """Endless comparisons whose facts are given: the conclusion and the answer are trained."""
        for draft, _ in self._drafts(rng, ("comparison",)):
            facts = Segment(f"<think>{given_facts(draft)}", False)
            yield Demonstration(draft, False, (facts, Segment(conclusion(draft, self._tags), True)))

    def reading(self, top_k: int, rng: random.Random) -> Iterator[Demonstration]:
        """Endless questions whose searches are given: what follows from the last observation is trained."""
        for draft, world in self._drafts(rng, ("comparison", "bridge", "bridge", "single")):
            *given, last = segments(draft, world, True, top_k, rng, self._tags)
            yield Demonstration(draft, True, (*(Segment(piece.text, False) for piece in given), last))

    def planning(self, parallel_share: float, rng: random.Random) -> Iterator[Demonstration]:
        """Endless first steps: how many facts are needed, and the first search, parallel or not."""
        types = ("comparison", "comparison", "bridge", "bridge_comparison", "single")
        for draft, world in self._drafts(rng, types):
            parallel = rng.random() < parallel_share and len(draft.levels[0]) > 1
            yield Demonstration(draft, parallel, segments(draft, world, parallel, 1, rng, self._tags)[:1])

    def _drafts(self, rng: random.Random, types: tuple[str, ...]) -> Iterator[tuple[Draft, World]]:
        while True:
            world = self._fiction.draw(rng)
            for _ in range(8):
                if draft := draw(world, rng, rng.choice(types)):
                    yield draft, world

    def _concluded(self, drawn: Callable[[random.Random], tuple[list[str], str]], rng: random.Random) -> Row:
        row: list[Segment] = []
        for _ in range(COMPARISONS_A_ROW):
            facts, concluded = drawn(rng)
            row += [
                Segment(f"<think> {' and '.join(facts)}:", False),
                Segment(f" {concluded}", True),
                Segment(".</think>\n", False),
            ]
        return tuple(row)

    def _numbers(self, rng: random.Random) -> tuple[list[str], str]:
        count, near = rng.choice(PARTS), rng.random() < 0.5
        while True:
            sizes = [rng.choice(self._populations) for _ in range(count)]
            if near:
                sizes = [rounded(int(1000 * sizes[0] * 2 ** rng.uniform(-1.5, 1.5))) for _ in sizes]
            if min(sizes) > 0 and one_is_clearly_largest(sizes):
                return [population_text(size) for size in sizes], ORDINALS[sizes.index(max(sizes))]

    def _alike(self, rng: random.Random) -> tuple[list[str], str]:
        kinds, count, same = rng.choice(self._kinds), rng.choice(PARTS), rng.random() < 0.5
        first, other = rng.sample(kinds, 2)
        others = 0 if same else rng.randint(1, count - 1)
        facts = [other] * others + [first] * (count - others)
        rng.shuffle(facts)
        return facts, likeness(same)
