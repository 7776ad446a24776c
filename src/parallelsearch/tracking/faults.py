"""What goes wrong between the collector and a store, and how long it is waited for.

A store that is down, restarting or locked is a StoreUnavailable: the same collection may succeed a moment later, and
since it writes only what is missing, it is simply done again. Anything else ends at once, in one sentence.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import TypeVar

from parallelsearch.errors import DataError
from parallelsearch.tracking.place import Place

PASSES = 10  # collections that may be broken off by a store which answers again in between
PAUSES = (0.1, 1.0)  # seconds between them, drawn: two that met go on at different moments
LONGEST_PAUSE = 5.0  # seconds between two looks at a store
_REFUSED = (
    "authentication failed", "no password supplied", "does not exist", "permission denied", "no pg_hba.conf",
    "readonly database", "unable to open database", "disk is full",
)  # fmt: skip
_TEMPORARY = (  # "giving up": several collections registered a version at once
    "database is locked", "api request to", "connection", "shutting down", "starting up", "timed out", "giving up",
)  # fmt: skip
_MET = ("duplicate key value", "unique constraint failed")  # another collection wrote the same at the same moment
T = TypeVar("T")


class StoreUnavailable(DataError):
    """A store that is down or locked: it may answer later."""


def patiently(
    place: Place, patience: float, work: Callable[[], T], lock: Callable[[], AbstractContextManager[None]] = nullcontext
) -> T:
    """`work()` as soon as the store answers, again when it is broken off; StoreUnavailable after `patience` seconds.

    `lock` keeps other collections away while the store is looked at: they are waited for, however long they take.
    """
    for remaining in reversed(range(PASSES)):
        with lock():
            wait_for(place, patience)
        try:
            with reported(place):
                return work()
        except StoreUnavailable:
            if not remaining:
                raise
            time.sleep(random.uniform(*PAUSES))
    raise AssertionError("unreachable")


def wait_for(place: Place, patience: float) -> None:
    """Returns once the store answers and may be written to."""
    import tenacity

    waiting = tenacity.Retrying(
        stop=tenacity.stop_after_delay(patience),
        wait=tenacity.wait_exponential_jitter(multiplier=0.2, max=min(LONGEST_PAUSE, patience)),
        retry=tenacity.retry_if_exception_type(StoreUnavailable),
        reraise=True,
    )
    begun = time.monotonic()
    try:
        waiting(_look, place)
    except StoreUnavailable as error:
        seconds = time.monotonic() - begun
        raise StoreUnavailable(f"the MLflow store {place.name} {error} (waited {seconds:.0f} s)") from error


def _look(place: Place) -> None:
    """Asks the store once, with an end of its own: MLflow's clients try for minutes."""
    if place.is_server:
        _look_at_server(place)
    elif place.database is not None:
        _look_at_sqlite(place)
    else:
        _look_at_database(place)


def _look_at_server(place: Place) -> None:
    from mlflow.exceptions import MlflowException
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request

    try:
        reply = http_request(
            get_default_host_creds(place.uri),
            "/api/2.0/mlflow/experiments/get",  # this goes through the server to its database, /health does not
            "GET",
            params={"experiment_id": "0"},
            max_retries=0,
            timeout=10,
            raise_on_status=False,
        )
    except MlflowException as error:
        raise StoreUnavailable(f"does not answer ({place.hidden(_one_line(_root(error)))})") from error
    if reply.status_code >= 500:
        raise StoreUnavailable(f"answers with status {reply.status_code}")


def _look_at_sqlite(place: Place) -> None:
    database = place.database
    if database is None or not database.is_file():
        return
    try:
        with closing(sqlite3.connect(database, timeout=0.5)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise StoreUnavailable("is locked by another process") from error
    except sqlite3.DatabaseError as error:
        reason = _one_line(error)
        raise DataError(f"the MLflow store {database} cannot be used ({reason}); repair, move or delete it.") from error


def _look_at_database(place: Place) -> None:
    import sqlalchemy

    engine = sqlalchemy.create_engine(place.uri, connect_args={"connect_timeout": 10})
    try:
        with reported(place), engine.connect():
            pass
    except StoreUnavailable as error:
        raise StoreUnavailable(f"does not answer ({place.hidden(_one_line(error.__cause__))})") from error
    finally:
        engine.dispose()


@contextmanager
def reported(place: Place) -> Iterator[None]:
    """Turns what MLflow and the database raise into one sentence: StoreUnavailable, or DataError."""
    from mlflow.exceptions import MlflowException
    from requests.exceptions import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, RequestException) as error:
        reason = place.hidden(_one_line(error))
        if is_temporary(error):
            raise StoreUnavailable(f"the MLflow store {place.name} broke off ({reason})") from error
        if place.is_server or place.database is None:
            raise DataError(f"the MLflow store {place.name} refuses ({reason}); mend that and run it again.") from error
        raise DataError(
            f"the MLflow store {place.name} cannot be used ({reason}); repair, move or delete it."
        ) from error


def is_temporary(error: BaseException) -> bool:
    """Whether the same call may succeed a moment later: a lock, a lost connection, a server that restarts."""
    from mlflow.exceptions import MlflowException
    from requests.exceptions import RequestException
    from sqlalchemy.exc import DBAPIError

    text = str(error).lower()
    if any(words in text for words in _REFUSED):
        return False
    if is_removed(error) or any(words in text for words in _MET):
        return True
    if isinstance(error, MlflowException):
        if error.error_code == "TEMPORARILY_UNAVAILABLE":
            return True
        return error.error_code == "INTERNAL_ERROR" and any(words in text for words in _TEMPORARY)
    if isinstance(error, RequestException):  # from a server that takes artifacts
        return error.response is None or error.response.status_code >= 500
    return isinstance(error, DBAPIError) and (error.connection_invalidated or any(word in text for word in _TEMPORARY))


def is_removed(error: BaseException) -> bool:
    """Whether a run was written to that another collection of the same study has removed as one of two."""
    return "must be in the 'active' state" in str(error)


def _root(error: BaseException) -> BaseException:
    """The error that the others were raised for."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def _one_line(error: BaseException | None) -> str:
    text = " ".join(str(getattr(error, "orig", None) or error).split())
    return text.partition(" (Background on this error")[0][:300].rstrip(". ")
