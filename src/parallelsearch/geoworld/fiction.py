"""Fictional worlds for demonstrations: invented names and redrawn facts, so that a policy learns to read.

Names come from a character model of real training names, values from the real training facts; no entity of another
split is used.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable

from parallelsearch.geoworld.facts import City, Country, World

_ORDER = 3
_END = "\n"


class NameModel:
    """A character Markov chain of order 3."""

    def __init__(self, names: Iterable[str]) -> None:
        self._next: dict[str, list[str]] = defaultdict(list)
        for name in names:
            padded = _END * _ORDER + name + _END
            for end in range(_ORDER, len(padded)):
                self._next[padded[end - _ORDER : end]].append(padded[end])

    def draw(self, rng: random.Random, longest: int = 24) -> str:
        """A name of 3 to `longest` characters."""
        while True:
            context, name = _END * _ORDER, ""
            while len(name) <= longest:
                letter = rng.choice(self._next[context])
                if letter == _END:
                    break
                name, context = name + letter, (context + letter)[-_ORDER:]
            if 3 <= len(name) <= longest and name == name.strip():
                return name


class Fiction:
    """Draws small fictional worlds in the likeness of `real`."""

    def __init__(self, real: World) -> None:
        self._countries = list(real.countries.values())
        self._cities = list(real.cities.values())
        self._country_names = NameModel(real.countries)
        self._city_names = NameModel(real.cities)

    def draw(self, rng: random.Random, countries: int = 6, cities: int = 12, real_share: float = 0.2) -> World:
        """A world of so many countries and cities; a share `real_share` has real names with redrawn facts."""
        real = rng.random() < real_share
        names = self._names(rng, countries, self._country_names, [c.name for c in self._countries], real)
        made = {name: self._country(rng, name) for name in names}
        homes = rng.sample(names, min(len(names), max(2, countries // 2)))
        towns = self._names(rng, cities, self._city_names, [c.name for c in self._cities], real)
        drawn = {name: self._city(rng, name, rng.choice(homes)) for name in towns if name not in made}
        return World(made, drawn)

    def _names(self, rng: random.Random, count: int, model: NameModel, known: list[str], real: bool) -> list[str]:
        if real:
            return rng.sample(known, min(count, len(known)))
        names: dict[str, None] = {}
        while len(names) < count:
            names.setdefault(model.draw(rng))
        return list(names)

    def _country(self, rng: random.Random, name: str) -> Country:
        pick = lambda fact: getattr(rng.choice(self._countries), fact)  # noqa: E731
        capital = pick("capital") if rng.random() < 0.5 else self._city_names.draw(rng)
        currency = pick("currency") if rng.random() < 0.7 else self._country_names.draw(rng)
        return Country(name, pick("continent"), capital, currency, pick("population"), pick("borders"))

    def _city(self, rng: random.Random, name: str, country: str) -> City:
        like = rng.choice(self._cities)
        return City(name, country, rng.choice(self._cities).population, like.latitude, like.is_capital)
