"""Where a store is: its address, the folder of its artifacts, and what of its address must not be written down.

A study has a place of its own, an SQLite file in results/mlflow with the artifacts beside it. The configuration may
name another: an MLflow server, or a database that a server shows.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from parallelsearch.config import TrackingConfig
from parallelsearch.config.tracking import MASK, address_fault, masked
from parallelsearch.errors import ConfigError

DATABASE = "mlflow.db"
ARTIFACTS = "artifacts"
USERNAME, PASSWORD = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"  # MLflow sends them to a server
_SECRETS = (PASSWORD, "MLFLOW_TRACKING_TOKEN", "PGPASSWORD")


@dataclass(frozen=True)
class Place:
    """A store's address as MLflow takes it, and what the collector has to know of it."""

    uri: str
    artifacts: Path | None = None  # folder that the collector writes artifacts to; None: the server takes them
    secrets: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How the store is called in messages and files."""
        return str(self.database or self.hidden(self.uri))

    @property
    def database(self) -> Path | None:
        """The file of an SQLite store."""
        return Path(self.uri.removeprefix("sqlite:///")) if self.uri.startswith("sqlite:") else None

    @property
    def is_server(self) -> bool:
        return self.uri.startswith("http")

    def hidden(self, text: str) -> str:
        """`text` without passwords and tokens."""
        secrets = [*self.secrets, *(os.environ.get(name, "") for name in _SECRETS)]
        for secret in sorted(filter(None, secrets), key=len, reverse=True):
            text = text.replace(secret, MASK)
        return masked(text)


def own_place(folder: Path) -> Place:
    """The SQLite store in results/mlflow."""
    return Place(f"sqlite:///{(Path(folder) / DATABASE).resolve()}", (Path(folder) / ARTIFACTS).resolve())


def place_of(folder: Path, settings: TrackingConfig) -> Place:
    """The store that the settings name; the study's own where they name none.

    A password in a server's address is taken out of it and handed to MLflow by its environment variables, for MLflow
    prints addresses.
    """
    if settings.uri is None:
        return own_place(folder)
    uri = _address(settings)
    artifacts = Path(settings.artifacts).resolve() if settings.artifacts else None
    parts = urlsplit(uri)
    password = parts.password or ""
    secrets = tuple({password, unquote(password)} - {""})
    if parts.scheme in ("http", "https"):
        if parts.username:
            os.environ[USERNAME] = unquote(parts.username)
        if password:
            os.environ[PASSWORD] = unquote(password)
        uri = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
        return Place(uri, None, secrets)
    if parts.scheme == "postgresql":
        uri = f"postgresql+psycopg{uri[len(parts.scheme) :]}"  # SQLAlchemy would look for psycopg2
    place = Place(uri, artifacts, secrets)
    return replace(place, artifacts=place.database.parent / ARTIFACTS) if place.database and not artifacts else place


def _address(settings: TrackingConfig) -> str:
    """The address itself: what the configuration says, or the environment variable that it names."""
    uri = settings.uri or ""
    if not uri.startswith("$"):
        return uri
    name = uri[1:].strip("{}")
    address = os.environ.get(name, "")
    if not address:
        raise ConfigError(
            f"tracking.uri is '{uri}', but the environment variable {name} is not set; set it to the store's address."
        )
    if fault := address_fault(address, settings.artifacts):
        raise ConfigError(f"tracking.uri is '{uri}', and what {name} holds {fault}")
    return address
