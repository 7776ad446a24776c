"""Where finished runs are tracked."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

from pydantic import Field, model_validator

from parallelsearch.config.section import Section

MASK = "***"
SCHEMES = ("http", "https", "postgresql", "postgresql+psycopg", "sqlite")
_PASSWORD = re.compile(r"(?<=://)([^\s:/@'\"]*):([^\s'\"]*)@")
_SECRET_KEYS = re.compile(r"pass|pwd|token|secret", re.IGNORECASE)


def masked(text: str) -> str:
    """`text` with *** in place of the password of every address in it (scheme://user:password@host)."""
    return _PASSWORD.sub(rf"\1:{MASK}@", text)


def address_fault(uri: str, artifacts: str | None) -> str | None:
    """What is wrong with the address of a store, as the end of a sentence that starts with its name; None: nothing."""
    scheme = uri.partition(":")[0].lower()
    try:
        known = scheme in SCHEMES and "://" in uri and urlsplit(uri).port != 0
    except ValueError:  # a port that is no number, a bracket that is not closed
        known = False
    if not known:
        return f"is no address of an MLflow store; give {', '.join(f'{scheme}://...' for scheme in SCHEMES)}, or $NAME."
    if scheme == "sqlite" and not uri.startswith("sqlite:////"):
        return "is a file relative to the folder a job runs in; give an absolute path: sqlite:////folder/file."
    if scheme.startswith("postgresql") and artifacts is None:
        return (
            "is a database; set tracking.artifacts to the folder of the artifacts, the one that `mlflow server` gets as"
            " --artifacts-destination."
        )
    return None


class TrackingConfig(Section):
    """MLflow."""

    experiment: str = Field("parallelsearch", description="Experiment name.")
    uri: str | None = Field(
        None,
        description=(
            "MLflow server (http://host:5000) or database (postgresql://user@host/name, sqlite:////folder/file);"
            " $NAME: the address stands in that environment variable, where it may hold a password;"
            " none: the SQLite store under results/mlflow."
        ),
    )
    artifacts: str | None = Field(
        None,
        description=(
            "Folder of the artifacts where uri is a database: the server's --artifacts-destination; none: artifacts/"
            " beside an SQLite file. A server stores them itself."
        ),
    )
    traces_per_run: int = Field(12, ge=0, description="Episodes of each arm stored as MLflow traces.")
    patience: float = Field(60.0, ge=0, description="Seconds to wait for a store that is down or locked.")

    @model_validator(mode="after")
    def _is_an_address_without_password(self) -> TrackingConfig:
        if self.uri is None or self.uri.startswith("$"):
            return self
        query = parse_qsl(self.uri.partition("?")[2])
        if _PASSWORD.search(self.uri) or any(_SECRET_KEYS.search(key) for key, _ in query):
            raise ValueError(
                "tracking.uri holds a password, which would be copied into logs and reports; put the whole address into"
                " an environment variable and give its name: uri: $MLFLOW_TRACKING_URI."
            )
        if fault := address_fault(self.uri, self.artifacts):
            raise ValueError(f"tracking.uri is '{self.uri}': this {fault}")
        return self
