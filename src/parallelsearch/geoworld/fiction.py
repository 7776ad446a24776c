"""Fictional worlds for demonstrations: invented names and redrawn facts, so that a policy learns to read.

Names come from character models of real training names, values from the real training facts; no entity of another
split is used. The looser the model, the less its names are like real ones: a policy that copies them copies any
name. (Names close to the few real training countries are learnt by heart instead.)
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable

from parallelsearch.geoworld.facts import City, Country, World

ORDERS = (1, 2, 3)  # of the character models; each world takes one of them
_END = "\n"


class NameModel:
    """A character Markov chain."""

    def __init__(self, names: Iterable[str], order: int) -> None:
        self._order = order
        self._next: dict[str, list[str]] = defaultdict(list)
        for name in names:
            padded = _END * order + name + _END
            for end in range(order, len(padded)):
                self._next[padded[end - order : end]].append(padded[end])

    def draw(self, rng: random.Random, longest: int = 24) -> str:
        """A name of 3 to `longest` characters."""
        while True:
            context, name = _END * self._order, ""
            while len(name) <= longest:
                letter = rng.choice(self._next[context])
                if letter == _END:
                    break
                name, context = name + letter, (context + letter)[-self._order :]
            if 3 <= len(name) <= longest and name == name.strip():
                return name


class Fiction:
    """Draws small fictional worlds in the likeness of `real`."""

    def __init__(self, real: World) -> None:
        self._countries = list(real.countries.values())
        self._cities = list(real.cities.values())
        self._continents = sorted({country.continent for country in self._countries})
        self._models = [NameModel([*real.countries, *real.cities], order) for order in ORDERS]

    def draw(self, rng: random.Random, countries: int = 6, cities: int = 12, real_share: float = 0.2) -> World:
        """A world of so many countries and cities; a share `real_share` has real names with redrawn facts."""
        real = rng.random() < real_share
        model = rng.choice(self._models)
        names = self._names(rng, countries, model, [c.name for c in self._countries], real)
        continents = rng.sample(self._continents, 2)  # so that several countries lie on the same one
        made = {name: self._country(rng, name, model, rng.choice(continents)) for name in names}
        homes = rng.sample(names, min(len(names), max(2, countries // 2)))
        towns = self._names(rng, cities, model, [c.name for c in self._cities], real)
        drawn = {name: self._city(rng, name, rng.choice(homes)) for name in towns if name not in made}
        return World(made, drawn)

    def names(self, rng: random.Random, count: int) -> list[str]:
        """So many different invented names, all of one character model."""
        return self._names(rng, count, rng.choice(self._models), [], real=False)

    def _names(self, rng: random.Random, count: int, model: NameModel, known: list[str], real: bool) -> list[str]:
        if real:
            return rng.sample(known, min(count, len(known)))
        names: dict[str, None] = {}
        while len(names) < count:
            names.setdefault(model.draw(rng))
        return list(names)

    def _country(self, rng: random.Random, name: str, model: NameModel, continent: str) -> Country:
        pick = lambda fact: getattr(rng.choice(self._countries), fact)  # noqa: E731
        capital = pick("capital") if rng.random() < 0.5 else model.draw(rng)
        currency = pick("currency") if rng.random() < 0.7 else model.draw(rng)
        return Country(name, continent, capital, currency, pick("population"), pick("borders"))

    def _city(self, rng: random.Random, name: str, country: str) -> City:
        like = rng.choice(self._cities)
        return City(name, country, rng.choice(self._cities).population, like.latitude, like.is_capital)
