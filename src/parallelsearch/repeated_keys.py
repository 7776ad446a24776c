"""Keys that a YAML or JSON text gives twice: parsers keep the last one silently, and another study would run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

from parallelsearch.errors import ConfigError

MERGE = "tag:yaml.org,2002:merge"  # `<<`, whose keys yield to those beside it: that is what it is for


def yaml_value(text: str, where: str) -> Any:
    """The value of the YAML (or JSON) document `text`, as yaml.safe_load gives it.

    A mapping with a key given twice is a ConfigError that begins with `where` and names the key and both lines. Raises
    yaml.YAMLError for what is no YAML.
    """
    loader = yaml.SafeLoader(text.replace("\t", " ") if _is_json(text) else text)  # JSON is YAML but for tabs
    try:
        node = loader.get_single_node()
        for path, first, again in _repeated(loader, node, (), set()):
            lines = f"line {first}" if first == again else f"lines {first} and {again}"
            raise ConfigError(f"{where}: the key '{path}' is given twice, on {lines}; keep one of the two.")
        return None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


def json_value(text: str, where: str) -> Any:
    """The value of the JSON `text`; a key given twice is a ConfigError that begins with `where` and names it.

    Raises json.JSONDecodeError for what is no JSON.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ConfigError(f"{where}: the key '{twice}' is given twice; keep one of the two.")
        return values

    return json.loads(text, object_pairs_hook=unique)


def _repeated(
    loader: yaml.SafeLoader, node: yaml.Node | None, path: tuple[str, ...], seen: set[int]
) -> Iterator[tuple[str, int, int]]:
    """Dotted path of each repeated key below `node`, and the lines (from 1) of two places where it is given."""
    if node is None or id(node) in seen:  # an alias stands for a node that was looked at
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for element in node.value:
            yield from _repeated(loader, element, path, seen)
    if isinstance(node, yaml.MappingNode):
        lines: dict[Any, int] = {}
        for key, value in node.value:
            name = (*path, str(key.value))
            if isinstance(key, yaml.ScalarNode) and key.tag != MERGE:
                line, given = key.start_mark.line + 1, loader.construct_object(key)
                if given in lines:
                    yield ".".join(name), lines[given], line
                lines[given] = line
            yield from _repeated(loader, value, name, seen)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
