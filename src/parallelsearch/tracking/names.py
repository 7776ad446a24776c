"""What MLflow accepts as names and values, and how ours are brought to it without losing or merging anything."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from parallelsearch.errors import DataError

NAME_LENGTH = 250
VALUE_LENGTH = 6000
TAG_LENGTH = 5000
_REFUSED = re.compile(r"[^\w\-. :/]", re.ASCII)
_PATH_LIKE = re.compile(r"^[./]+|/(?=/)|(?<=/)\.+(?=/|$)|/$")


def sanitised(name: str) -> str:
    """`name` with every character that MLflow refuses replaced by `_`: timing(s)/gen -> timing_s_/gen."""
    clean = _PATH_LIKE.sub("_", _REFUSED.sub("_", name)) or "_"
    if len(clean) > NAME_LENGTH:
        clean = f"{clean[: NAME_LENGTH - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return clean


def sanitised_names(names: Iterable[str], where: str) -> dict[str, str]:
    """name -> MLflow's name; two names that would become one are a DataError that names both and the place."""
    taken: dict[str, str] = {}
    for name in names:
        other = taken.setdefault(sanitised(name), name)
        if other != name:
            raise DataError(
                f"{where}: '{other}' and '{name}' would both be called '{sanitised(name)}' in MLflow; rename one."
            )
    return {name: clean for clean, name in taken.items()}


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as `section.key` -> text; lists and empty mappings are JSON."""
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            flat |= flattened(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value, default=str)
    return flat


def shortened(text: str, length: int = VALUE_LENGTH) -> str:
    """`text`, or its beginning with its size and checksum when it is longer than MLflow stores."""
    if len(text) <= length:
        return text
    ending = f" ... ({len(text)} characters, sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]})"
    return text[: length - len(ending)] + ending


def is_metric(value: Any) -> bool:
    """True for a finite number; MLflow draws no curve through anything else."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
