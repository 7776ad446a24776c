"""Hostile values where a configuration holds a name, a path, an address or the name of a variable."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile import COMMANDS, EVERY_COMMAND, PLACES, SCRIPT, TEXTS

from parallelsearch.config import JudgeConfig, RemoteFile
from parallelsearch.config_files import merge, read_yaml, validated
from parallelsearch.errors import ConfigError
from parallelsearch.plan.planning import StudyPlan

ROOT = Path(__file__).resolve().parents[1]
HOSTILE = {**COMMANDS, "script": SCRIPT, "nul": TEXTS["nul"], "terminal": TEXTS["terminal"], "bidi": TEXTS["bidi"]}
PLAIN_THERE = {("results", "parent"), ("policy", "parent")}  # the reader's own choice of a folder, and quoted


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_study_with_a_hostile_value_is_refused_in_one_printable_sentence(
    place: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    values = merge(read_yaml(ROOT / "config" / "config.yaml"), PLACES[place](HOSTILE[kind]))
    if (place, kind) in PLAIN_THERE:
        StudyPlan.from_values(values)
        return
    with pytest.raises(ConfigError) as refused:
        StudyPlan.from_values(values)
    said = str(refused.value)
    assert said.startswith("configuration: ")
    assert not set(said) & set("\x00\x07\x08\x1b\x9b\r\u202e\u202c\u2066\u2069\u200f")


@pytest.mark.parametrize("path", ["../OWNED", "/etc/OWNED", "data/../../OWNED"])
def test_nothing_is_downloaded_outside_of_the_checkout(path: str) -> None:
    assert validated(RemoteFile, {"path": path}, "x").path == path  # read where the reader says
    with pytest.raises(
        ConfigError, match=r"downloaded outside of this folder; give a path below it, such as data/OWNED"
    ):
        validated(RemoteFile, {"path": path, "url": "http://127.0.0.1/x"}, "x")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/x", "//host/x", "http://", "http://host/a b", "x"])
def test_an_address_is_one_of_the_web(url: str) -> None:
    with pytest.raises(ConfigError, match=r"'url' is .*an address begins with http"):
        validated(RemoteFile, {"path": "data/x", "url": url}, "x")


@pytest.mark.parametrize(
    "url",
    [
        "https://me:s3cr3t-value@host/x",
        "https://host/x?access_token=s3cr3t-value",
        "https://h/x?X-Amz-Signature=s3cr3t-value",
    ],
)
def test_an_address_with_a_secret_is_refused_without_repeating_it(url: str) -> None:
    for section, values in (
        (RemoteFile, {"path": "data/x", "url": url}),
        (JudgeConfig, {"url": url, "model": "m"}),
    ):
        with pytest.raises(ConfigError, match=r"of h\w* has a password or a token in it") as refused:
            validated(section, values, "x")
        assert "s3cr3t" not in str(refused.value)


@pytest.mark.parametrize("value", ["sk-s3cr3t-value", EVERY_COMMAND, "", "A" * 65])
def test_a_key_in_the_place_of_its_variables_name_is_refused_without_repeating_it(value: str) -> None:
    values = {"url": "http://127.0.0.1:8000/v1", "model": "m", "key_variable": value}
    with pytest.raises(ConfigError, match="is no name of an environment variable") as refused:
        validated(JudgeConfig, values, "x")
    assert "s3cr3t" not in str(refused.value) and "touch" not in str(refused.value)


@pytest.mark.parametrize("key", ["api_key", "key", "hf_token", "password", "client_secret"])
def test_an_unknown_key_that_names_a_secret_is_refused_without_its_value(key: str) -> None:
    values = {"url": "http://127.0.0.1:8000/v1", "model": "m", key: "s3cr3t-value"}
    with pytest.raises(ConfigError, match=f"unknown key '{key}'; allowed here: url, model") as refused:
        validated(JudgeConfig, values, "x")
    assert "s3cr3t" not in str(refused.value)
