"""Files from the net: resumed after an interruption, checked against their registered SHA-256, renamed when whole.

A file whose checksum nobody registered is taken as it comes, once: what was found stands beside it in FILE.sha256, with
which every later download of it, and every command that reads it, compares.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import typer

from parallelsearch.errors import DataError
from parallelsearch.files import sha256 as digest_of
from parallelsearch.files import write_text

UNKNOWN = "unknown"
BLOCK = 1 << 20

app = typer.Typer()


def download(url: str, path: Path, sha256: str | None = None, timeout: float = 60.0) -> str:
    """Fetches `url` to `path` and returns the file's SHA-256.

    What arrived before an interruption stays beside it in a hidden file and is continued when the server can.
    Raises DataError when the server refuses or the connection breaks (the part is kept), and when the checksum
    differs (the part is removed).
    """
    import httpx

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{hashlib.sha256(url.encode()).hexdigest()[:8]}.download")
    have = partial.stat().st_size if partial.exists() else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        with httpx.stream("GET", url, headers=headers, timeout=timeout, follow_redirects=True) as reply:
            if have and reply.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                pass  # the part is already the whole file
            elif reply.is_error:
                raise DataError(
                    f"{url} answered {reply.status_code} {reply.reason_phrase}; check the url of {path} in the"
                    f" configuration, or put the file at {path} yourself."
                )
            else:
                append = reply.status_code == httpx.codes.PARTIAL_CONTENT
                with partial.open("ab" if append else "wb") as stream:
                    for block in reply.iter_raw(BLOCK):
                        stream.write(block)
    except httpx.HTTPError as error:
        raise DataError(
            f"{url} could not be fetched ({type(error).__name__}: {error}); run again to go on from what arrived, or"
            f" put the file at {path} yourself."
        ) from None
    found = digest_of(partial)
    if sha256 and found != sha256:
        partial.unlink()
        raise DataError(
            f"{url} has SHA-256 {found}, but {sha256} is registered; the published file changed or the transfer was"
            " damaged: run again, then check the registered value."
        )
    partial.replace(path)
    return found


def record_of(path: Path) -> Path:
    """Where the checksum of a raw file stands, as sha256sum writes and checks it."""
    return path.with_name(f"{path.name}.sha256")


def recorded_sha256(path: Path) -> str | None:
    """The checksum in FILE.sha256; None where there is no such file. DataError for one that holds none."""
    record = record_of(path)
    if not record.is_file():
        return None
    found = record.read_text(encoding="utf-8", errors="replace").split()
    if not found or not re.fullmatch(r"[0-9a-f]{64}", found[0]):
        raise DataError(f"{record} holds no SHA-256 (64 hexadecimal digits); write it with sha256sum, or delete it.")
    return found[0]


def require_recorded(path: Path, registered: str | None = None) -> None:
    """DataError unless a raw file has the checksum that is `registered`, or else recorded beside it."""
    expected = registered or recorded_sha256(path)
    if expected and path.is_file() and (found := digest_of(path)) != expected:
        where = "registered" if registered else f"recorded in {record_of(path)}"
        raise DataError(
            f"{path} has SHA-256 {found}, but {expected} is {where}; it was changed or damaged: delete it to have it"
            " downloaded again, or put the right file there."
        )


@app.command()
def fetch(
    url: str = typer.Argument(help="Where the file is published."),
    path: Path = typer.Argument(help="Where it goes."),
    sha256: str = typer.Option(UNKNOWN, help="Expected SHA-256; 'unknown' accepts any and prints what was found."),
) -> None:
    """Download one file and check its SHA-256."""
    beside = recorded_sha256(path)
    found = download(url, path, beside if sha256 == UNKNOWN else sha256)
    if not beside:
        write_text(record_of(path), f"{found}  {path.name}\n")
    typer.echo(f"{path}: {path.stat().st_size} bytes, sha256 {found}")
