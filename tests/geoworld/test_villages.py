"""Invented villages: as many as one likes, none like another or like a real place, none asked about."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from typer.testing import CliRunner

from parallelsearch.answers import normalise
from parallelsearch.errors import ConfigError
from parallelsearch.geoworld import facts
from parallelsearch.geoworld.commands import app
from parallelsearch.geoworld.facts import City, World, load_world
from parallelsearch.geoworld.passages import passages_of
from parallelsearch.geoworld.villages import INHABITANTS, NAMES, invented_villages, village_name
from parallelsearch.records import Passage


@pytest.fixture(scope="module")
def world() -> World:
    return load_world(500)


def test_every_name_is_another(world: World) -> None:
    """64 syllables of two letters in four places: 64 ** 4 names."""
    assert NAMES == 64**4 == 16_777_216
    assert village_name(0) == "Babababa"
    assert village_name(1) == "Bebababa"
    assert village_name(NAMES - 1) == "Zozozozo"
    villages = list(invented_villages(world, 50_000, seed=1))
    assert len({normalise(village.name) for village in villages}) == 50_000


def test_villages_are_of_real_countries_and_real_names_are_passed_over(world: World) -> None:
    first = next(invented_villages(world, 1, seed=1)).name
    taken = World(world.countries, world.cities | {first: City(first, "Peru", 5, 3, False)})
    villages = list(invented_villages(taken, 2000, seed=1))
    assert first not in {village.name for village in villages}
    latitudes = {(city.country, city.latitude) for city in taken.cities.values()}
    assert all((village.country, village.latitude) in latitudes for village in villages)
    assert all(1 <= village.population <= INHABITANTS[1] // 1000 for village in villages)
    assert max(Counter(village.country for village in villages).values()) < 2000 / 20


def test_villages_are_the_same_for_a_seed_and_come_one_by_one(world: World) -> None:
    few, many = (islice(invented_villages(world, count, seed=1), 5) for count in (5, 8_000_000))
    assert list(few) == list(many) != list(invented_villages(world, 5, seed=2))
    with pytest.raises(ConfigError, match="asks for 9000000 invented villages; at most 8388608 have names"):
        next(invented_villages(world, 9_000_000, seed=1))


def test_a_world_larger_than_geonames_is_filled_with_villages(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With fewer real cities than there are, for speed: the real passages stand first, as they are without villages."""
    monkeypatch.setattr(facts, "MOST_CITIES", len(world.cities))
    settings = '{"passages": 1600, "train_questions": 8, "dev_questions": 8, "test_questions": 8}'
    result = CliRunner().invoke(app, ["build", str(tmp_path / "world"), "--settings", settings])
    assert result.exit_code == 0, result.output
    lines = (tmp_path / "world" / "passages.jsonl").read_text(encoding="utf-8").splitlines()
    passages = [Passage(**json.loads(line)) for line in lines]
    real = len(world.countries) + len(world.cities)
    assert passages[:real] == passages_of(world)
    assert [passage.id for passage in passages] == list(range(1600))
    assert all(" is a village of " in passage.text for passage in passages[real:])
    manifest = json.loads((tmp_path / "world" / "manifest.json").read_text())
    assert (manifest["rows"]["passages"], manifest["invented"]) == (1600, 1600 - real)
    questions = (tmp_path / "world" / "questions.train.jsonl").read_text().splitlines()
    assert all(id < real for line in questions for id in json.loads(line)["supporting_ids"])
