"""A disk that is full is named in one sentence, whatever library met it first.

pyarrow and Python say so with an error number, safetensors and FAISS in words only, NumPy and PyTorch not at all.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from parallelsearch.errors import ResourceError, UserError

NUMBERS = (errno.ENOSPC, errno.EDQUOT)
WORDS = ("No space left on device", "Disk quota exceeded")
NOTHING_LEFT = 1 << 16  # bytes; what fails to write leaves the disk filled to the last block
NEXT_STEP = (
    "free some, or put the study's results on a larger disk, and start the same command again: what is complete is kept"
)


@contextmanager
def naming_full_disk(path: Path, clear: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Makes a failure of the block for want of room a ResourceError that names the folder of `path`.

    `clear` is called first: what was half written has to go, or there is no room for the sentence in a log either.
    """
    try:
        yield
    except ResourceError:
        clear()
        raise
    except UserError:
        raise
    except Exception as error:
        if not is_full(error, path.parent):
            raise
        clear()
        raise ResourceError(f"the disk of {path.parent} is full: {path.name} was not written; {NEXT_STEP}.") from error


def is_full(error: BaseException, folder: Path) -> bool:
    """Whether `error` is about room, by its number, its words or, where it has neither, what is left in `folder`."""
    if says_full(error):
        return True
    about_files = isinstance(error, OSError | RuntimeError)
    return about_files and folder.exists() and shutil.disk_usage(folder).free < NOTHING_LEFT


def says_full(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, says that there is no room."""
    while error is not None:
        if getattr(error, "errno", None) in NUMBERS or any(words in str(error) for words in WORDS):
            return True
        error = error.__cause__ or error.__context__
    return False
