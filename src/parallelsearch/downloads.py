"""Files from the net: resumed after an interruption, checked against their registered SHA-256, renamed when whole."""

from __future__ import annotations

import hashlib
from pathlib import Path

import typer

from parallelsearch.errors import DataError
from parallelsearch.files import sha256 as digest_of

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


@app.command()
def fetch(
    url: str = typer.Argument(help="Where the file is published."),
    path: Path = typer.Argument(help="Where it goes."),
    sha256: str = typer.Option(UNKNOWN, help="Expected SHA-256; 'unknown' accepts any and prints what was found."),
) -> None:
    """Download one file and check its SHA-256."""
    found = download(url, path, None if sha256 == UNKNOWN else sha256)
    typer.echo(f"{path}: {path.stat().st_size} bytes, sha256 {found}")
