"""Which study a run belongs to.

Several studies may share a store, and two of them may train the same arm with the same seed and configuration. What
tells them apart is study.json in the results folder: it is written once, and a moved or copied folder is still the same
study.
"""

from __future__ import annotations

import os
from uuid import uuid4

from parallelsearch.errors import DataError
from parallelsearch.files import read_json, write_json
from parallelsearch.plan.paths import Results

STUDY = "parallelsearch.study"  # tag of every run


def study_id(results: Results) -> str:
    """The study's identity; written where it is missing, by whichever process comes first."""
    path = results.study()
    if not path.is_file():
        mine = path.with_name(f".{path.name}.{uuid4().hex[:8]}.partial")
        write_json(mine, {"study": uuid4().hex})
        try:
            os.link(mine, path)
        except FileExistsError:
            pass
        finally:
            mine.unlink()
    identity = str(read_json(path).get("study", ""))
    if not identity:
        raise DataError(f"{path} does not say which study this is; delete it, and its runs are collected anew.")
    return identity
