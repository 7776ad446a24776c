"""From YAML files and JSON arguments to typed sections: merging, validation, and what is wrong in one sentence.

Every arm is validated with the study, before any job is planned.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from parallelsearch.config import ArmConfig, Section, StudyConfig
from parallelsearch.config.names import holds_secret
from parallelsearch.config.tracking import masked
from parallelsearch.errors import ConfigError
from parallelsearch.repeated_keys import json_value, yaml_value

CONFIG_DIR = Path("config")

YAML_GUESSES = (bool, int, float, date)  # what a plain word can be in YAML 1.1

S = TypeVar("S", bound=Section)


def merge(base: dict[str, Any], overlay: dict[str, Any]) -> dict[str, Any]:
    """Deep merge of mappings as Snakemake does it: mappings are merged, anything else is replaced."""
    merged = dict(base)
    for key, value in overlay.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def read_yaml(path: Path) -> dict[str, Any]:
    """Reads a YAML mapping without repeated keys; anything else is a ConfigError that names the file."""
    try:
        value = yaml_value(Path(path).read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 ({error.reason}); save it as UTF-8.") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path} holds {type(value).__name__}, not a mapping of settings.")
    return value


def check_loaded(files: Iterable[Path], arguments: Iterable[str] = ()) -> None:
    """Raises ConfigError for a key given twice in what Snakemake has read: `files`, and `--config` NAME=VALUE.

    Its own loader keeps the last one, so that the merged mapping does not show it.
    """
    for path in files:
        read_yaml(path)
    for argument in arguments:
        name, _, value = argument.partition("=")
        with suppress(yaml.YAMLError):  # plain text, as Snakemake takes it
            yaml_value(value, f"--config {name}")


def validated(section: type[S], values: dict[str, Any], where: str) -> S:
    """`values` as a `section`; every fault becomes part of one ConfigError with key, value and what is allowed."""
    try:
        return section.model_validate(values)
    except ValidationError as error:
        faults = " ".join(_sentence(section, fault) for fault in error.errors())
        raise ConfigError(masked(f"{where}: {faults}")) from None


def from_json(section: type[S], text: str, where: str) -> S:
    """The JSON object `text` (a command's --settings) as a `section`; anything else is a ConfigError."""
    shown = repr(masked(text)[:80])
    try:
        values = json_value(text, where)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}: {shown} is not valid JSON ({error}); give one JSON object.") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{where}: {shown} is not a JSON object; give one such as '{{}}'.")
    return validated(section, values, where)


def load_study(*overlays: Path, config_dir: Path = CONFIG_DIR) -> StudyConfig:
    """config/config.yaml with `overlays` merged over it, validated with all its arms."""
    values = read_yaml(config_dir / "config.yaml")
    for overlay in overlays:
        values = merge(values, read_yaml(overlay))
    return validate_study(values, config_dir=config_dir)


def validate_study(values: dict[str, Any], config_dir: Path = CONFIG_DIR) -> StudyConfig:
    """A merged mapping as a StudyConfig; also validates every arm it names."""
    study = validated(StudyConfig, values, "configuration")
    for name in study.arms:
        source = load_arm(study, name, config_dir).policy_of
        if source and source not in study.arms:
            raise ConfigError(
                f"configuration: arm {name} is answered by the policy_of '{source}', which is not among arms:"
                f" {', '.join(study.arms)}; add it."
            )
    if study.baseline not in study.arms:
        raise ConfigError(
            f"configuration: baseline is '{study.baseline}', which is not among arms: {', '.join(study.arms)}."
        )
    for name in study.arm_overrides:
        if name not in arm_names(config_dir):
            raise ConfigError(
                f"configuration: arm_overrides has '{name}', which has no overlay in {config_dir / 'arms'};"
                f" known arms: {', '.join(arm_names(config_dir))}."
            )
        load_arm(study, name, config_dir)
    return study


def declaration_file(folder: str, name: str, key: str, config_dir: Path = CONFIG_DIR) -> Path:
    """`config_dir`/`folder`/`name`.yaml (encoders, rerankers, policies); a ConfigError names `key` and known names."""
    path = Path(config_dir) / folder / f"{name}.yaml"
    known = sorted(entry.stem for entry in path.parent.glob("*.yaml"))
    if name not in known:
        raise ConfigError(
            f"{key} is '{name}', which has no declaration in {path.parent}; known {folder}: {', '.join(known)}."
        )
    return path


def arm_names(config_dir: Path = CONFIG_DIR) -> list[str]:
    """Names of all overlays in config/arms/."""
    return sorted(path.stem for path in (config_dir / "arms").glob("*.yaml"))


def load_arm(study: StudyConfig, name: str, config_dir: Path = CONFIG_DIR) -> ArmConfig:
    """The overlay config/arms/{name}.yaml merged over the study's agent, reward and training sections.

    What the study says in arm_overrides of this arm alone is merged over that. A `policy_of` that names no arm which is
    trained itself is a ConfigError.
    """
    arm = _merged_arm(study, name, "arms", config_dir)
    if arm.policy_of:
        key = f"policy_of of arm {name}"
        source = _merged_arm(study, arm.policy_of, key, config_dir)
        if source.policy_of:
            raise ConfigError(
                f"{key} is '{arm.policy_of}', which is itself answered by the policy of '{source.policy_of}'; name the"
                " arm that is trained."
            )
        if not source.training.steps:
            raise ConfigError(
                f"{key} is '{arm.policy_of}', which is not trained (its training.steps is 0); name an arm that is"
                " trained, or leave policy_of out to take the initial policy."
            )
    return arm


def _merged_arm(study: StudyConfig, name: str, key: str, config_dir: Path) -> ArmConfig:
    path = config_dir / "arms" / f"{name}.yaml"
    if name not in arm_names(config_dir):
        raise ConfigError(
            f"{key} has '{name}', which has no overlay {path}; known arms: {', '.join(arm_names(config_dir))}."
        )
    base = {key: getattr(study, key).model_dump() for key in ("agent", "reward", "training")}
    values, where = merge(base, {"name": name, **read_yaml(path)}), f"arm {name} ({path})"
    if override := study.arm_overrides.get(name):
        values, where = merge(values, override.model_dump()), f"arm {name} ({path} and arm_overrides.{name})"
    return validated(ArmConfig, values, where)


def _sentence(section: type[BaseModel], fault: Any) -> str:
    key = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        allowed = ", ".join(_known_keys(section, fault["loc"][:-1]))
        value = "" if holds_secret(key) else f" (value {fault['input']!r})"
        return f"unknown key '{key}'{value}; allowed here: {allowed}."
    if fault["type"] == "missing":
        return f"key '{key}' is missing."
    if fault["type"] == "value_error":
        return str(fault["ctx"]["error"])
    quoted = "; put it in quotation marks, for YAML reads yes, no, dates and numbers as something else than text"
    advice = quoted if fault["type"] == "string_type" and isinstance(fault["input"], YAML_GUESSES) else ""
    return f"'{key}' is {fault['input']!r}: {fault['msg'][0].lower()}{fault['msg'][1:]}{advice}."


def _known_keys(section: Any, location: tuple[int | str, ...]) -> list[str]:
    for part in location:
        field = section.model_fields.get(part) if hasattr(section, "model_fields") else None
        annotation = field.annotation if field else section
        nested = [a for a in (annotation, *getattr(annotation, "__args__", ())) if hasattr(a, "model_fields")]
        section = nested[0] if nested else annotation
    return list(section.model_fields) if hasattr(section, "model_fields") else []
