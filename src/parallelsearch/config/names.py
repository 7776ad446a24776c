"""What a name, a path and an address in a configuration may hold.

Names become parts of paths, of Snakemake's wildcards, of tables and of MLflow's queries; paths and addresses reach
commands. Every command line quotes them, and these rules hold beside that.
"""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

_SECRET = re.compile(r"token|secret|passw|api_?key|credential|signature", re.IGNORECASE)


def _matching(pattern: str, rule: str) -> AfterValidator:
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise PydanticCustomError("plain_name", "{rule}", {"rule": rule})
        return value

    return AfterValidator(check)


# Of a data set, a split or a corpus: a dot joins two of them.
Name = Annotated[
    str, _matching(r"[A-Za-z0-9_][A-Za-z0-9_+-]*", "a name has letters, digits, _, + and - only; + and - not first")
]
# Of an arm, or of a declaration under config/.
_DOTTED = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*"
DottedName = Annotated[str, _matching(_DOTTED, "a name has letters, digits, _, +, - and . only; + - . not first")]
PlainPath = Annotated[
    str,
    _matching(
        r"[\w./~@(][\w./+=,@~() -]*",
        "a path has letters, digits, spaces and . / _ + = , @ ~ ( ) - only, and does not begin with -",
    ),
]


def _variable(value: str) -> str:
    # The value is not repeated: who puts the key itself here must not find it in a log.
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", value):
        raise ValueError(
            "a key_variable is no name of an environment variable (letters, digits and _); put the key into a variable"
            " and its name here."
        )
    return value


VariableName = Annotated[str, AfterValidator(_variable)]


def without_secret(value: str) -> str:
    """`value`, an address; ValueError, which does not repeat it, where a password or a token stands in it."""
    parts = urlsplit(value)
    if parts.password or any(_SECRET.search(name) for name, _ in parse_qsl(parts.query, keep_blank_values=True)):
        raise ValueError(
            f"the address of {parts.hostname} has a password or a token in it, which would stand in logs and results;"
            " take it out, and put it where the environment has it."
        )
    return value


def _web_address(value: str) -> str:
    parts = urlsplit(without_secret(value))
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"[\x00-\x20\x7f]", value):
        raise PydanticCustomError("web_address", "an address begins with http:// or https:// and has no spaces")
    return value


WebAddress = Annotated[str, AfterValidator(_web_address)]


def holds_secret(key: str) -> bool:
    """True for a key whose name says that its value is a secret: such a value is never repeated."""
    return re.search(r"(token|secret|passw(or)?d|key|credentials?)$", key, re.IGNORECASE) is not None


def is_dotted_name(name: str) -> bool:
    """True for what may be the name of an arm."""
    return re.fullmatch(_DOTTED, name) is not None
