"""Who may ask a server of this project: this machine alone, or whoever has its token."""

from __future__ import annotations

import ipaddress
import secrets

from starlette.requests import Request

from parallelsearch.errors import ConfigError
from parallelsearch.secret import SHORTEST_TOKEN, read_secret


def is_local(host: str) -> bool:
    """True for an address that only this machine reaches."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def required_token(host: str, variable: str, everybody: bool = False) -> str | None:
    """The token in `variable` that a server on `host` asks for; None where it asks for none.

    ConfigError for an address that other machines reach without a token, or with a short one, unless `everybody` may.
    """
    try:
        token = read_secret(variable)
    except ValueError as error:
        raise ConfigError(f"{error} Set it to another one, such as `openssl rand -hex 32` prints.") from None
    if is_local(host) or everybody:
        return token or None
    if len(token) < SHORTEST_TOKEN:
        found = f"the token in {variable} has {len(token)} characters" if token else f"{variable} is not set"
        raise ConfigError(
            f"other machines reach a server on {host}, and {found}: set it to a long random text (`openssl rand -hex"
            " 32`) for server and clients, listen on 127.0.0.1, or give --no-token to admit everybody."
        )
    return token


def is_authorised(request: Request, token: str | None) -> bool:
    """Whether a request carries the token, compared in constant time."""
    given = request.headers.get("authorization", "")
    return not token or secrets.compare_digest(given.encode(), f"Bearer {token}".encode())
