"""Invented villages: passages that no question asks about, for corpora larger than GeoNames has cities."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator

from parallelsearch.answers import normalise
from parallelsearch.errors import ConfigError
from parallelsearch.geoworld.facts import City, World, rounded

SYLLABLES = [consonant + vowel for consonant in "bdfghjklmnprstvz" for vowel in "aeio"]  # 64, all of two letters
SYLLABLES_PER_NAME = 4
NAMES = len(SYLLABLES) ** SYLLABLES_PER_NAME  # 16.8 million
INHABITANTS = (500, 15_000)
_STRIDE = 10_368_889  # odd, hence a permutation of the 2**24 numbers: neighbours get names that are not alike


def invented_villages(world: World, count: int, seed: int) -> Iterator[City]:
    """`count` villages in the countries of `world`, one by one; deterministic, memory does not grow with `count`.

    Every name is another (four syllables spell its number) and none is a country or city of `world`. A village lies as
    far north or south as some city of its country. Raises ConfigError for more than half of NAMES.
    """
    if count > NAMES // 2:
        raise ConfigError(f"geoworld.passages asks for {count} invented villages; at most {NAMES // 2} have names.")
    rng = random.Random(f"{seed}/villages")
    first = rng.randrange(NAMES)
    taken = {normalise(name) for name in (*world.countries, *world.cities)}
    latitudes: dict[str, list[int]] = defaultdict(list)
    for city in world.cities.values():
        latitudes[city.country].append(city.latitude)
    countries = sorted(latitudes)
    number = made = 0
    while made < count:
        name = village_name((first + number * _STRIDE) % NAMES)
        number += 1
        if normalise(name) in taken:
            continue
        country = rng.choice(countries)
        population = rounded(rng.randrange(*INHABITANTS)) or 1
        yield City(name, country, population, rng.choice(latitudes[country]), is_capital=False)
        made += 1


def village_name(number: int) -> str:
    """The name that spells `number`, 0 .. NAMES - 1, in the base of 64 syllables."""
    name = ""
    for _ in range(SYLLABLES_PER_NAME):
        number, digit = divmod(number, len(SYLLABLES))
        name += SYLLABLES[digit]
    return name.capitalize()
