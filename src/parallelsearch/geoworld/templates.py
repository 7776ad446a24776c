"""Question templates: each draws entities from a world and states the look-ups that answer the question.

Kinds follow HotpotQA and 2WikiMultiHopQA: comparison (two independent look-ups), bridge (the second look-up needs the
first's result), bridge_comparison (two bridges, compared) and single.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from parallelsearch.geoworld.facts import World, population_text

CLEAR_MARGIN = 1.2  # populations are of different years: a comparison needs this ratio to have a sure answer


@dataclass(frozen=True, slots=True)
class LookUp:
    """One article to read, and the fact it is read for."""

    title: str
    fact: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A question with its answer and its look-ups; those of one level are independent."""

    text: str
    answer: str
    type: str
    levels: tuple[tuple[LookUp, ...], ...]


Template = Callable[[World, random.Random], Draft | None]


def _yes_no(value: bool) -> str:
    return "yes" if value else "no"


def _two_cities(world: World, rng: random.Random, same_country: bool | None = None) -> tuple[str, str] | None:
    names = list(world.cities)
    first = rng.choice(names)
    if same_country is None:
        second = rng.choice(names)
    else:
        country = world.cities[first].country
        pool = [name for name in names if (world.cities[name].country == country) == same_country]
        second = rng.choice(pool) if pool else first
    return (first, second) if first != second else None


def _clear(first: int, second: int) -> bool:
    return max(first, second) >= CLEAR_MARGIN * min(first, second) and first != second


def larger_city(world: World, rng: random.Random) -> Draft | None:
    """Comparison of two numbers; the answer is a name."""
    pair = _two_cities(world, rng)
    if pair is None:
        return None
    a, b = pair
    size = {name: world.cities[name].population for name in pair}
    if not _clear(size[a], size[b]):
        return None
    return Draft(
        f"Which city has more inhabitants, {a} or {b}?",
        a if size[a] > size[b] else b,
        "comparison",
        ((LookUp(a, population_text(size[a])), LookUp(b, population_text(size[b]))),),
    )


def same_country(world: World, rng: random.Random) -> Draft | None:
    """Comparison of two names; the answer is yes or no."""
    pair = _two_cities(world, rng, same_country=rng.random() < 0.5)
    if pair is None:
        return None
    a, b = pair
    home = {name: world.cities[name].country for name in pair}
    return Draft(
        f"Are {a} and {b} in the same country?",
        _yes_no(home[a] == home[b]),
        "comparison",
        ((LookUp(a, home[a]), LookUp(b, home[b])),),
    )


def _two_countries(world: World, rng: random.Random, fact: str, alike: bool | None) -> tuple[str, str] | None:
    names = list(world.countries)
    first = rng.choice(names)
    value = getattr(world.countries[first], fact)
    pool = [
        name
        for name in names
        if name != first and (alike is None or (getattr(world.countries[name], fact) == value) == alike)
    ]
    return (first, rng.choice(pool)) if pool else None


def more_populous_country(world: World, rng: random.Random) -> Draft | None:
    """Comparison of two numbers; the answer is a name."""
    pair = _two_countries(world, rng, "population", None)
    if pair is None:
        return None
    a, b = pair
    size = {name: world.countries[name].population for name in pair}
    if not _clear(size[a], size[b]):
        return None
    return Draft(
        f"Which country has more inhabitants, {a} or {b}?",
        a if size[a] > size[b] else b,
        "comparison",
        ((LookUp(a, population_text(size[a])), LookUp(b, population_text(size[b]))),),
    )


def same_continent(world: World, rng: random.Random) -> Draft | None:
    """Comparison of two names; the answer is yes or no."""
    pair = _two_countries(world, rng, "continent", rng.random() < 0.5)
    if pair is None:
        return None
    a, b = pair
    place = {name: world.countries[name].continent for name in pair}
    return Draft(
        f"Are {a} and {b} on the same continent?",
        _yes_no(place[a] == place[b]),
        "comparison",
        ((LookUp(a, place[a]), LookUp(b, place[b])),),
    )


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
    pair = _two_cities(world, rng, same_country=False)
    if pair is None:
        return None
    a, b = (world.cities[name] for name in pair)
    places = [world.countries[city.country].continent for city in (a, b)]
    if (places[0] == places[1]) != alike:
        return None
    return Draft(
        f"Are the countries where {a.name} and {b.name} lie on the same continent?",
        _yes_no(places[0] == places[1]),
        "bridge_comparison",
        (
            (LookUp(a.name, a.country), LookUp(b.name, b.country)),
            (LookUp(a.country, places[0]), LookUp(b.country, places[1])),
        ),
    )


def city_in_more_populous_country(world: World, rng: random.Random) -> Draft | None:
    """Two bridges, compared; the answer is the name of a city."""
    pair = _two_cities(world, rng, same_country=False)
    if pair is None:
        return None
    a, b = (world.cities[name] for name in pair)
    sizes = [world.countries[city.country].population for city in (a, b)]
    if not _clear(*sizes):
        return None
    return Draft(
        f"Which city lies in the country with more inhabitants, {a.name} or {b.name}?",
        a.name if sizes[0] > sizes[1] else b.name,
        "bridge_comparison",
        (
            (LookUp(a.name, a.country), LookUp(b.name, b.country)),
            (LookUp(a.country, population_text(sizes[0])), LookUp(b.country, population_text(sizes[1]))),
        ),
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


def capital_of_country(world: World, rng: random.Random) -> Draft | None:
    """One look-up; the answer is a name."""
    country = world.countries[rng.choice(list(world.countries))]
    return Draft(
        f"What is the capital of {country.name}?",
        country.capital,
        "single",
        ((LookUp(country.name, country.capital),),),
    )


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
    "comparison": (larger_city, same_country, more_populous_country, same_continent),
    "bridge": (
        _bridge("What is the capital", "capital"),
        _bridge("What is the currency", "currency"),
        _bridge("What is the continent", "continent"),
        bridge_borders,
    ),
    "bridge_comparison": (countries_on_same_continent, city_in_more_populous_country),
    "single": (country_of_city, inhabitants_of_city, capital_of_country, borders_of_country),
}
