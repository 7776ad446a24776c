"""A key given twice, and a list that is a set with an entry given twice: refused, never the last one taken."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from parallelsearch.config import Bm25Config
from parallelsearch.config_files import check_loaded, from_json, load_study, merge, read_yaml, validate_study
from parallelsearch.errors import ConfigError

CONFIG = Path(__file__).resolve().parents[1] / "config"


@pytest.mark.parametrize(
    ("text", "key", "lines"),
    [
        ("a: 1\nb: 2\na: 3\n", "a", "lines 1 and 3"),
        ("a:\n  b: 1\n  c: 2\n  b: 1\n", "a.b", "lines 2 and 4"),
        ("a: {b: 1, c: 2, b: 3}\n", "a.b", "line 1"),
        ("a:\n  - b: 1\n    'b': 2\n", "a.b", "lines 2 and 3"),
        ("# first\n\n1: x\n1: y\n", "1", "lines 3 and 4"),
        ("yes: x\non: y\n", "on", "lines 1 and 2"),  # both are `true` in YAML 1.1
        ("base: &base {b: 1, b: 2}\na: {<<: *base}\n", "base.b", "line 1"),
        ('{\n\t"a": 1,\n\t"a": 2\n}\n', "a", "lines 2 and 3"),  # JSON, indented with tabs
        ("\ufeffa: 1\r\na: 2\r\n", "a", "lines 1 and 2"),
    ],
)
def test_a_key_given_twice_is_refused_with_its_lines(tmp_path: Path, text: str, key: str, lines: str) -> None:
    path = tmp_path / "overlay.yaml"
    path.write_bytes(text.encode())
    with pytest.raises(ConfigError) as refusal:
        read_yaml(path)
    assert str(refusal.value) == f"{path}: the key '{key}' is given twice, on {lines}; keep one of the two."


def test_keys_that_a_merge_brings_and_keys_of_different_mappings_are_no_repetition(tmp_path: Path) -> None:
    path = tmp_path / "overlay.yaml"
    path.write_text("base: &base {b: 1, c: 2}\na: {<<: *base, b: 3}\nd: [{b: 1}, {b: 2}]\ne: *base\n")
    base = {"b": 1, "c": 2}
    assert read_yaml(path) == {"base": base, "a": {"b": 3, "c": 2}, "d": [{"b": 1}, {"b": 2}], "e": base}


def test_a_users_overlay_and_arm_are_refused(shared_data: Path, tmp_path: Path) -> None:
    overlay = shared_data / "field2" / "duplicate_key.yaml"
    for read in (lambda: load_study(overlay, config_dir=CONFIG), lambda: check_loaded([overlay])):
        with pytest.raises(ConfigError, match="the key 'training' is given twice, on lines 1 and 5"):
            read()
    (tmp_path / "arms").mkdir()
    for name in ("search-r1", "mine"):
        (tmp_path / "arms" / f"{name}.yaml").write_text("reward: {semantics: paper}\nreward: {lambda_d: 1}\n")
    values = merge(read_yaml(CONFIG / "config.yaml"), {"arms": ["search-r1", "mine"]})
    with pytest.raises(ConfigError, match=r"search-r1.yaml: the key 'reward' is given twice, on lines 1 and 2"):
        validate_study(values, tmp_path)


def test_json_settings_and_arguments_of_snakemake_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^--settings: the key 'k1' is given twice; keep one of the two\.$"):
        from_json(Bm25Config, '{"k1": 1.2, "b": 0.5, "k1": 0.9}', "--settings")
    with pytest.raises(ConfigError, match=r"^--config training: the key 'steps' is given twice, on line 1"):
        check_loaded([], ["seeds=[0]", "results=a: b: c", "training={steps: 1, batch_size: 2, steps: 3}"])


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"seeds": [0, 1, 1]}, r"'seeds' is \[0, 1, 1\]: 1 is given twice; give it once\."),
        ({"seeds": ["1", 1.0]}, r"'seeds' is \['1', 1.0\]: 1 is given twice; give it once\."),
        ({"arms": ["search-r1", "search-r1"]}, "'arms' is .*: 'search-r1' is given twice"),
        ({"evaluation": {"sets": ["geoworld.dev", "geoworld.dev"]}}, "'evaluation.sets' is .* is given twice"),
        ({"training": {"sets": ["geoworld.train", "geoworld.train"]}}, "'training.sets' is .* is given twice"),
        (
            {"arm_overrides": {"otc": {"training": {"sets": ["geoworld.train"] * 2}}}},
            r"arm_overrides.otc\): 'training.sets' is .*: 'geoworld.train' is given twice",
        ),
    ],
)
def test_an_entry_given_twice_in_a_list_that_is_a_set_is_refused(values: dict, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        validate_study(merge(read_yaml(CONFIG / "config.yaml"), values), CONFIG)


def test_a_users_repeated_seed_is_refused(shared_data: Path) -> None:
    with pytest.raises(ConfigError, match=r"'seeds' is \[0, 1, 1\]: 1 is given twice"):
        load_study(shared_data / "field2" / "duplicate_seed.yaml", config_dir=CONFIG)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"arms": [False]}, "'arms.0' is False"),  # arms: [no]
        ({"results": date(2024, 1, 1)}, r"'results' is datetime.date\(2024, 1, 1\)"),
        (
            {"datasets": {"mine": {"reader": "own", "corpus": "geoworld", "layout": {"structures": {True: "single"}}}}},
            r"'datasets.mine.layout.structures.1.\[key\]' is True",
        ),
    ],
)
def test_what_yaml_took_for_something_else_than_text_wants_quotation_marks(values: dict, found: str) -> None:
    with pytest.raises(ConfigError, match=f"{found}: input should be a valid string; put it in quotation marks"):
        validate_study(merge(read_yaml(CONFIG / "config.yaml"), values), CONFIG)
