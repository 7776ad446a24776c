"""The bytes of a raw file as text: gzip undone whatever its name says, what is no text file refused."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from parallelsearch.errors import DataError

GZIP = b"\x1f\x8b"
PARQUET = b"PAR1"
_ARCHIVES = {b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"7z\xbc\xaf": "7z"}
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_LFS_POINTER = b"version https://git-lfs"


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked when it is gzip.

    Raises DataError for a missing file, a broken gzip stream, another archive, a Git LFS pointer, a web page, an
    empty file.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; check the path.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check the path and its permissions.") from None
    if data.startswith(GZIP):
        try:
            data = gzip.decompress(data)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(f"{path} is a broken or cut-off gzip file ({error}); fetch it again.") from None
    for magic, kind in _ARCHIVES.items():
        if data.startswith(magic):
            raise DataError(f"{path} is a {kind} archive; unpack it and name the file inside.")
    if data.startswith(_LFS_POINTER):
        raise DataError(f"{path} is a Git LFS pointer, not the data; fetch the file itself with `git lfs pull`.")
    if data.lstrip()[:15].lower().startswith((b"<!doctype", b"<html")):
        raise DataError(f"{path} is a web page, not data; fetch the file itself from its download address.")
    if not data.strip():
        raise DataError(f"{path} is empty; fetch it again.")
    return data


def as_text(path: Path, data: bytes) -> str:
    """UTF-8 text, with or without byte order mark. Raises DataError with file and line of the first bad byte."""
    if data.startswith(_UTF16):
        raise DataError(f"{path} is UTF-16; convert it to UTF-8.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DataError(
            f"{path}, line {line}: byte 0x{data[error.start]:02x} is not UTF-8 ({error.reason});"
            " convert the file to UTF-8 or fetch it again."
        ) from None
