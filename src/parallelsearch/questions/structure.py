"""The structure of a question from its data set and type: one table, config/structure.yaml, for the whole project."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from parallelsearch.config_files import CONFIG_DIR, read_yaml
from parallelsearch.errors import ConfigError, DataError
from parallelsearch.questions.names import DATASETS, dataset_name
from parallelsearch.records import Structure

ANY_TYPE = "*"  # stands for every type of a data set whose questions all have one structure
TABLE = "structure.yaml"

Structures = Mapping[str, Mapping[str, Structure]]


def structure_of(dataset: str, type: str | None, *, row: str = "", table: Path | None = None) -> Structure:
    """The structure of a question of `type` in `dataset`; `table` is another file than config/structure.yaml.

    Raises DataError for an unknown data set or type: data set, type and `row` (where the question stands) are named,
    and the allowed values are listed.
    """
    name = dataset_name(dataset)
    types = load_structures(table)[name]
    tag = types.get(type or "", types.get(ANY_TYPE))
    if tag is None:
        where = f"{row}: " if row else ""
        found = f"type '{type}'" if type else "a question without a type"
        raise DataError(f"{where}{found} is unknown in data set {name}; its types: {', '.join(types)}.")
    return tag


def structure_of_type(type: str, *, table: Path | None = None) -> Structure:
    """The structure of a `type` that stands without its data set (all data sets that know the type agree on it).

    Raises DataError when no data set knows the type, or two disagree.
    """
    found = {types[type] for types in load_structures(table).values() if type != ANY_TYPE and type in types}
    if len(found) == 1:
        return found.pop()
    known = sorted({known for types in load_structures(table).values() for known in types} - {ANY_TYPE})
    reason = "differs between data sets; name the data set" if found else f"is unknown; known types: {', '.join(known)}"
    raise DataError(f"the structure of type '{type}' {reason}.")


def needs_type(dataset: str, *, table: Path | None = None) -> bool:
    """True when a question of `dataset` cannot be tagged without its type."""
    return ANY_TYPE not in load_structures(table)[dataset_name(dataset)]


def load_structures(table: Path | None = None) -> Structures:
    """The table: data set -> type -> structure. Raises ConfigError for a missing or faulty file."""
    return _load(Path(table) if table else table_path())


def table_path() -> Path:
    """config/structure.yaml of the working directory, or of the checkout this package lies in."""
    places = (CONFIG_DIR / TABLE, Path(__file__).resolve().parents[3] / CONFIG_DIR / TABLE)
    for place in places:
        if place.is_file():
            return place.resolve()
    raise ConfigError(f"{places[0]} does not exist; run from the root of the checkout, or name the table's file.")


@lru_cache(maxsize=8)
def _load(path: Path) -> Structures:
    structures: dict[str, dict[str, Structure]] = {}
    for dataset, types in read_yaml(path).items():
        if dataset not in DATASETS:
            raise ConfigError(f"{path}: '{dataset}' is not a known data set; known: {', '.join(DATASETS)}.")
        if not isinstance(types, dict) or not types:
            raise ConfigError(f"{path}: {dataset} holds {types!r}, not a mapping from type to structure.")
        allowed = [tag.value for tag in Structure]
        for type, tag in types.items():
            if tag not in allowed:
                raise ConfigError(f"{path}: {dataset}.{type} is {tag!r}; allowed: {', '.join(allowed)}.")
        structures[dataset] = {str(type): Structure(tag) for type, tag in types.items()}
    absent = [dataset for dataset in DATASETS if dataset not in structures]
    if absent:
        raise ConfigError(f"{path} has no entry for {', '.join(absent)}; add one for each data set.")
    return structures
