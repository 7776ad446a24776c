"""Exercises: each trains one step, in the words of a demonstration, and what it trains is right."""

from __future__ import annotations

import random
import re
from collections import Counter
from itertools import islice

import pytest

from parallelsearch.agent.tags import RESEARCH
from parallelsearch.geoworld.facts import World, load_world, split_countries
from parallelsearch.training.warm_start.demonstration_batches import IGNORED, exercise_rows
from parallelsearch.training.warm_start.demonstrations import Segment
from parallelsearch.training.warm_start.exercises import COMPARISONS_A_ROW, NAMES_A_ROW, Exercises
from parallelsearch.training.warm_start.policy import train_tokenizer

ORDINALS = ["first", "second", "third", "fourth"]


@pytest.fixture(scope="module")
def train_world() -> World:
    world = load_world(400)
    return world.restricted_to(split_countries(world, 0)["train"])


@pytest.fixture
def exercises(train_world: World) -> Exercises:
    return Exercises(train_world)


def rows(drawn, count: int = 60) -> list[tuple[Segment, ...]]:
    return [drawn(random.Random(seed)) for seed in range(count)]


def people(text: str) -> int:
    number, unit = text.split()
    return int(number) * {"thousand": 1_000, "million": 1_000_000}[unit]


def test_a_list_of_names_is_copied(exercises: Exercises) -> None:
    for given, trained in rows(exercises.copying):
        assert (given.trains_on, trained.trains_on) == (False, True)
        assert given.text == f"{trained.text[1:]}.\n"
        assert len(set(trained.text.split(", "))) == NAMES_A_ROW


def test_the_name_at_the_given_place_is_chosen(exercises: Exercises) -> None:
    for row in rows(exercises.choosing):
        for given, trained, _ in zip(*[iter(row)] * 3, strict=True):
            names, place = re.fullmatch(r"(.+)\?\n<think> (\w+)\.</think>\n<answer>", given.text).groups()
            *first, last = names.split(", ")
            chosen = [*first, *last.rsplit(" and ", 1)][ORDINALS.index(place)]
            assert trained.trains_on and trained.text == f" {chosen}</answer>"


def test_the_largest_number_is_named(exercises: Exercises) -> None:
    places: Counter[tuple[int, str]] = Counter()
    for row in rows(exercises.comparing_numbers):
        for given, trained, _ in zip(*[iter(row)] * 3, strict=True):
            sizes = [people(text) for text in given.text[len("<think> ") : -1].split(" and ")]
            assert sorted(sizes)[-1] >= 1.2 * sorted(sizes)[-2]
            assert trained.trains_on and trained.text[1:] == ORDINALS[sizes.index(max(sizes))]
            places[len(sizes), trained.text[1:]] += 1
    assert sum(places.values()) == 60 * COMPARISONS_A_ROW
    assert len(places) == 2 + 3 + 4  # every place of every length


def test_kinds_are_alike_in_half_of_the_lists(exercises: Exercises) -> None:
    verdicts: Counter[str] = Counter()
    for row in rows(exercises.comparing_kinds):
        for given, trained, _ in zip(*[iter(row)] * 3, strict=True):
            kinds = given.text[len("<think> ") : -1].split(" and ")
            assert trained.text[1:] == ("alike" if len(set(kinds)) == 1 else "different")
            verdicts[trained.text[1:]] += 1
    assert abs(verdicts["alike"] - verdicts["different"]) < 4 * sum(verdicts.values()) ** 0.5


def test_given_facts_are_not_trained_and_what_follows_is(exercises: Exercises) -> None:
    for exercise in islice(exercises.given(random.Random(4)), 100):
        draft, (given, trained) = exercise.draft, exercise.segments
        assert given.text == f"<think> {' and '.join(look_up.fact for look_up in draft.levels[-1])}"
        assert not given.trains_on
        assert trained.text == f": {draft.conclusion}.</think>\n<answer> {draft.answer}</answer>"


def test_each_fact_of_an_article_is_looked_up(exercises: Exercises) -> None:
    for article, *asked in rows(exercises.looking_up):
        values = {}
        for question, trained, _ in zip(*[iter(asked)] * 3, strict=True):
            values[re.match("What is the (.+) of ", question.text).group(1)] = trained.text[1:-1]
            assert trained.trains_on and not question.trains_on
        assert f"is a country in {values['continent']}. Its capital is {values['capital']}." in article.text
        assert f"Its currency is the {values['currency']}. It has {values['number of inhabitants']} " in article.text
        borders = values["number of borders"]
        assert f"It borders {'no' if borders == '0' else borders} other countr" in article.text


def test_reading_trains_what_follows_the_last_observation(exercises: Exercises) -> None:
    kinds = Counter()
    for exercise in islice(exercises.reading(1, random.Random(4)), 100):
        kinds[exercise.draft.type] += 1
        *given, last = exercise.segments
        assert not any(segment.trains_on for segment in given) and last.trains_on
        assert given[-1].text.strip().endswith("</information>")
        assert all(look_up.fact in last.text for look_up in exercise.draft.levels[-1])
    assert set(kinds) == {"comparison", "bridge", "single"}


def test_planning_trains_the_first_search_alone(exercises: Exercises) -> None:
    searches = Counter()
    for exercise in islice(exercises.planning(0.25, random.Random(4)), 400):
        (first,) = exercise.segments
        titles = [look_up.title for look_up in exercise.draft.levels[0]]
        parallel = f"<search> {' ## '.join(titles)}</search>" in first.text
        assert first.trains_on and (parallel or f"<search> {titles[0]}</search>" in first.text)
        searches[len(titles) > 1 and parallel, exercise.draft.type] += 1
    several = {type: searches[True, type] + searches[False, type] for type in ("comparison", "bridge_comparison")}
    assert min(several.values()) > 30 and searches[False, "bridge"] > 30 and searches[False, "single"] > 30
    decomposed = sum(searches[True, type] for type in several)
    assert abs(decomposed - 0.25 * sum(several.values())) < 4 * (0.25 * 0.75 * sum(several.values())) ** 0.5


def test_answers_stand_in_the_tags_of_the_policy(train_world: World) -> None:
    exercise = next(Exercises(train_world, RESEARCH).given(random.Random(4)))
    assert exercise.segments[1].text.endswith(f"<answer> \\boxed{{{exercise.draft.answer}}}</answer>")


def test_labels_cover_exactly_what_is_trained(exercises: Exercises) -> None:
    row = exercises.choosing(random.Random(3))
    tokenizer = train_tokenizer([segment.text for segment in row], 400)
    [(ids, labels)] = exercise_rows([row], tokenizer)
    assert tokenizer.decode(ids) == "".join(segment.text for segment in row)
    trained = "".join(segment.text for segment in row if segment.trains_on)
    assert tokenizer.decode([label for label in labels if label != IGNORED]) == trained
