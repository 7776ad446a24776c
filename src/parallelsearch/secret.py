"""Secrets: read from environment variables, sent as a bearer token, and taken out of whatever is said or stored."""

from __future__ import annotations

import os
import re

POLICY_TOKEN_VARIABLE = "PARALLELSEARCH_POLICY_TOKEN"  # of `policy serve`
HIDDEN = "[secret]"
SHORTEST_GUESSED = 8  # characters of a variable's value that is taken for a secret by the variable's name
SHORTEST_TOKEN = 16  # of a server that other machines reach
_NAMED_SO = re.compile(r"(^|_|API)(TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)


def read_secret(variable: str) -> str:
    """The secret in an environment variable, '' where there is none; white space around it is not part of it.

    ValueError, which names the variable alone, for one that no header can hold.
    """
    value = os.environ.get(variable, "").strip()
    if not re.fullmatch(r"[\x21-\x7e]*", value):
        raise ValueError(f"the secret in {variable} has characters other than ASCII letters, digits and signs.")
    return value


def authorisation(variable: str) -> dict[str, str]:
    """The header that carries the secret in `variable`; none without a secret."""
    secret = read_secret(variable)
    return {"Authorization": f"Bearer {secret}"} if secret else {}


def without_secrets(text: str, *variables: str) -> str:
    """`text` without the secrets in `variables` and in every variable whose name says that it holds one."""
    secrets = {os.environ.get(variable, "").strip() for variable in variables}
    for name, value in os.environ.items():
        if _NAMED_SO.search(name) and len(value.strip()) >= SHORTEST_GUESSED:
            secrets.add(value.strip())
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text
