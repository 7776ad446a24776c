"""The encyclopedia's articles: one passage a country, one a city, one an invented village."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from parallelsearch.geoworld.facts import City, Country, World, population_text
from parallelsearch.records import Passage


def country_text(country: Country) -> str:
    """Article of a country."""
    borders = {0: "no other country", 1: "1 other country"}.get(country.borders, f"{country.borders} other countries")
    return (
        f"{country.name} is a country in {country.continent}. Its capital is {country.capital}."
        f" Its currency is the {country.currency}. It has {population_text(country.population)} inhabitants."
        f" It borders {borders}."
    )


def city_text(city: City) -> str:
    """Article of a city."""
    kind = "the capital" if city.is_capital else "a city"
    return (
        f"{city.name} is {kind} of {city.country}. It has {population_text(city.population)} inhabitants"
        f" and lies {abs(city.latitude)} degrees {city.hemisphere}."
    )


def passages_of(world: World) -> list[Passage]:
    """All articles, countries first, each kind in alphabetical order; ids are row numbers."""
    articles = [(name, country_text(world.countries[name])) for name in sorted(world.countries)]
    articles += [(name, city_text(world.cities[name])) for name in sorted(world.cities)]
    return [Passage(id, title, text) for id, (title, text) in enumerate(articles)]


def village_passages(villages: Iterable[City], first_id: int) -> Iterator[Passage]:
    """Articles of villages, their ids from `first_id` on."""
    for id, village in enumerate(villages, start=first_id):
        yield Passage(id, village.name, city_text(village).replace(" is a city of ", " is a village of ", 1))
