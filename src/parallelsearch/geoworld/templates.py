"""Question templates: each draws entities from a world and states the look-ups that answer the question.

Kinds follow HotpotQA and 2WikiMultiHopQA: comparison (two independent look-ups), bridge (the second look-up needs the
first's result), bridge_comparison (two bridges, compared) and single.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from parallelsearch.geoworld.facts import City, Country, World, population_text

CLEAR_MARGIN = 1.2  # populations are of different years: a comparison needs this ratio to have a sure answer
PARTS = (2, 3, 4)  # entities that a comparison compares
ORDINALS = ("first", "second", "third", "fourth")
NUMBERS = ("no", "one", "two", "three", "four")


@dataclass(frozen=True, slots=True)
class LookUp:
    """One article to read, and the fact it is read for."""

    title: str
    fact: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A question with its answer and its look-ups; those of one level are independent.

    `conclusion` is what follows from the last level's facts where they are compared: which of them is the largest, or
    whether they are alike.
    """

    text: str
    answer: str
    type: str
    levels: tuple[tuple[LookUp, ...], ...]
    conclusion: str = ""


Template = Callable[[World, random.Random], Draft | None]


def _yes_no(value: bool) -> str:
    return "yes" if value else "no"


def likeness(value: bool) -> str:
    """A conclusion in words."""
    return "alike" if value else "different"


def _cities(world: World, rng: random.Random, count: int) -> tuple[str, ...] | None:
    names = list(world.cities)
    return tuple(rng.sample(names, count)) if len(names) >= count else None


def one_is_clearly_largest(sizes: Sequence[int]) -> bool:
    """Whether the largest exceeds all others by CLEAR_MARGIN."""
    second, largest = sorted(sizes)[-2:]
    return largest >= CLEAR_MARGIN * second


def _listed(kind: str, names: Sequence[str]) -> str:
    """'three cities A, B and C' (with `kind` "cities")."""
    return f"{NUMBERS[len(names)]} {kind} {', '.join(names[:-1])} and {names[-1]}"


def _most_inhabitants(kind: str) -> Template:
    """Comparison of two to four numbers; the answer is a name, each place in the question equally often."""

    def template(world: World, rng: random.Random) -> Draft | None:
        entities: Mapping[str, City | Country] = world.cities if kind == "cities" else world.countries
        count = rng.choice(PARTS)
        if len(entities) < count:
            return None
        names = rng.sample(list(entities), count)
        sizes = [entities[name].population for name in names]
        if not one_is_clearly_largest(sizes):
            return None
        return Draft(
            f"Which of the {_listed(kind, names)} has {'more' if count == 2 else 'the most'} inhabitants?",
            names[sizes.index(max(sizes))],
            "comparison",
            (tuple(LookUp(name, population_text(size)) for name, size in zip(names, sizes, strict=True)),),
            ORDINALS[sizes.index(max(sizes))],
        )

    return template


def _all_alike(wording: str, kind: str, fact: str) -> Template:
    """Comparison of two to four names; yes and no are equally frequent, and in half of the no's one name differs."""

    def template(world: World, rng: random.Random) -> Draft | None:
        entities: Mapping[str, City | Country] = world.cities if kind == "cities" else world.countries
        count, alike = rng.choice(PARTS), rng.random() < 0.5
        first = rng.choice(list(entities))
        value = getattr(entities[first], fact)
        same = [name for name in entities if getattr(entities[name], fact) == value and name != first]
        others = [name for name in entities if getattr(entities[name], fact) != value]
        strangers = 0 if alike else rng.choice((1, rng.randint(1, count - 1)))
        if len(same) < count - 1 - strangers or len(others) < strangers:
            return None
        names = [first, *rng.sample(same, count - 1 - strangers), *rng.sample(others, strangers)]
        rng.shuffle(names)
        return Draft(
            f"Are the {_listed(kind, names)} {wording}?",
            _yes_no(alike),
            "comparison",
            (tuple(LookUp(name, getattr(entities[name], fact)) for name in names),),
            likeness(alike),
        )

    return template


def _bridge(wording: str, fact: str) -> Template:
    def template(world: World, rng: random.Random) -> Draft | None:
        city = world.cities[rng.choice(list(world.cities))]
        value = str(getattr(world.countries[city.country], fact))
        if fact == "capital" and city.is_capital:
            return None
        return Draft(
            f"{wording} of the country where {city.name} lies?",
            value,
            "bridge",
            ((LookUp(city.name, city.country),), (LookUp(city.country, value),)),
        )

    return template


def bridge_borders(world: World, rng: random.Random) -> Draft | None:
    """Bridge with a number as its answer."""
    city = world.cities[rng.choice(list(world.cities))]
    value = str(world.countries[city.country].borders)
    if value == "0":
        return None
    return Draft(
        f"How many other countries border the country where {city.name} lies?",
        value,
        "bridge",
        ((LookUp(city.name, city.country),), (LookUp(city.country, value),)),
    )


def countries_on_same_continent(world: World, rng: random.Random) -> Draft | None:
    """Two bridges, compared; the answer is yes or no."""
    alike = rng.random() < 0.5
    pair = _cities(world, rng, 2)
    if pair is None:
        return None
    a, b = (world.cities[name] for name in pair)
    places = [world.countries[city.country].continent for city in (a, b)]
    if a.country == b.country or (places[0] == places[1]) != alike:
        return None
    return Draft(
        f"Are the countries where {a.name} and {b.name} lie on the same continent?",
        _yes_no(places[0] == places[1]),
        "bridge_comparison",
        (
            (LookUp(a.name, a.country), LookUp(b.name, b.country)),
            (LookUp(a.country, places[0]), LookUp(b.country, places[1])),
        ),
        likeness(alike),
    )


def city_in_more_populous_country(world: World, rng: random.Random) -> Draft | None:
    """Two bridges, compared; the answer is the name of a city."""
    pair = _cities(world, rng, 2)
    if pair is None:
        return None
    a, b = (world.cities[name] for name in pair)
    sizes = [world.countries[city.country].population for city in (a, b)]
    if not one_is_clearly_largest(sizes):
        return None
    return Draft(
        f"Which city lies in the country with more inhabitants, {a.name} or {b.name}?",
        a.name if sizes[0] > sizes[1] else b.name,
        "bridge_comparison",
        (
            (LookUp(a.name, a.country), LookUp(b.name, b.country)),
            (LookUp(a.country, population_text(sizes[0])), LookUp(b.country, population_text(sizes[1]))),
        ),
        ORDINALS[sizes.index(max(sizes))],
    )


def country_of_city(world: World, rng: random.Random) -> Draft | None:
    """One look-up; the answer is a name."""
    city = world.cities[rng.choice(list(world.cities))]
    return Draft(f"In which country is {city.name}?", city.country, "single", ((LookUp(city.name, city.country),),))


def inhabitants_of_city(world: World, rng: random.Random) -> Draft | None:
    """One look-up; the answer is a number."""
    city = world.cities[rng.choice(list(world.cities))]
    size = population_text(city.population)
    return Draft(f"How many inhabitants does {city.name} have?", size, "single", ((LookUp(city.name, size),),))


def _fact_of_country(fact: str) -> Template:
    """One look-up; the answer is a name."""

    def template(world: World, rng: random.Random) -> Draft | None:
        country = world.countries[rng.choice(list(world.countries))]
        value = str(getattr(country, fact))
        return Draft(f"What is the {fact} of {country.name}?", value, "single", ((LookUp(country.name, value),),))

    return template


def borders_of_country(world: World, rng: random.Random) -> Draft | None:
    """One look-up; the answer is a number."""
    country = world.countries[rng.choice(list(world.countries))]
    if not country.borders:
        return None
    value = str(country.borders)
    return Draft(
        f"How many other countries border {country.name}?",
        value,
        "single",
        ((LookUp(country.name, value),),),
    )


TEMPLATES: dict[str, tuple[Template, ...]] = {
    "comparison": (
        _most_inhabitants("cities"),
        _most_inhabitants("countries"),
        _all_alike("in the same hemisphere", "cities", "hemisphere"),
        _all_alike("on the same continent", "countries", "continent"),
    ),
    "bridge": (
        _bridge("What is the capital", "capital"),
        _bridge("What is the currency", "currency"),
        _bridge("What is the continent", "continent"),
        bridge_borders,
    ),
    "bridge_comparison": (countries_on_same_continent, city_in_more_populous_country),
    "single": (
        country_of_city,
        inhabitants_of_city,
        _fact_of_country("capital"),
        _fact_of_country("currency"),
        _fact_of_country("continent"),
        borders_of_country,
    ),
}
