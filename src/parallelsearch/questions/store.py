"""The question file between stages: one row a question, and in the footer where the questions came from."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from parallelsearch.errors import DataError
from parallelsearch.files import replacing
from parallelsearch.records import Question, Structure

PROVENANCE_KEY = b"parallelsearch.questions"
NEXT_STEP = "delete it and import the questions again (parallelsearch questions import)"

SCHEMA = pa.schema(
    [
        pa.field("qid", pa.string(), nullable=False),
        pa.field("dataset", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("golden_answers", pa.list_(pa.string()), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("structure", pa.string(), nullable=False),
        pa.field("hops", pa.int32()),
        pa.field("supporting_titles", pa.list_(pa.string()), nullable=False),
        pa.field("supporting_ids", pa.list_(pa.int64()), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a question file came from. `rows` and the counts are filled in when it is written."""

    reader: str = ""
    layout: str = ""
    source: str = ""
    source_sha256: str = ""
    answers_sha256: str = ""
    split: str | None = None
    limit: int | None = None
    left_out: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    structures: dict[str, int] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)


def counts_by_structure(questions: Sequence[Question]) -> dict[str, int]:
    """Number of questions of each structure that occurs, in the order of Structure."""
    counts = Counter(question.structure for question in questions)
    return {tag.value: counts[tag] for tag in Structure if counts[tag]}


def write_questions(path: Path, questions: Sequence[Question], provenance: Provenance | None = None) -> None:
    """Writes questions atomically, in order (parquet, zstd), with `provenance` in the file's metadata."""
    filled = {
        **asdict(provenance or Provenance()),
        "rows": len(questions),
        "structures": counts_by_structure(questions),
        "types": dict(sorted(Counter(question.type for question in questions).items())),
    }
    schema = SCHEMA.with_metadata({PROVENANCE_KEY: json.dumps(filled, ensure_ascii=False).encode()})
    table = pa.Table.from_pylist([_row(question) for question in questions], schema=schema)
    with replacing(path) as partial:
        pq.write_table(table, partial, compression="zstd")


def read_questions(path: Path) -> list[Question]:
    """The questions of a file in order, equal to what was written.

    Raises DataError for a missing, truncated, damaged or foreign file, and when it holds another number of rows than
    its footer says were written.
    """
    file = _open(path)
    try:
        rows = file.read().to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is damaged ({error}); {NEXT_STEP}.") from None
    finally:
        file.close()
    written = _metadata(path, file)["rows"]
    if len(rows) != written:
        raise DataError(f"{path} has {len(rows)} rows where {written} were written; {NEXT_STEP}.")
    return [_question(path, number, row) for number, row in enumerate(rows)]


def read_provenance(path: Path) -> Provenance:
    """Where a question file came from; reads the footer only."""
    file = _open(path)
    file.close()
    return Provenance(**_metadata(path, file))


def _row(question: Question) -> dict[str, Any]:
    return {**asdict(question), "structure": question.structure.value}


def _question(path: Path, number: int, row: dict[str, Any]) -> Question:
    try:
        structure = Structure(row["structure"])
    except ValueError:
        allowed = ", ".join(tag.value for tag in Structure)
        raise DataError(
            f"{path}, row {number}: structure is '{row['structure']}', allowed are {allowed}; {NEXT_STEP}."
        ) from None
    lists = {key: tuple(row[key]) for key in ("golden_answers", "supporting_titles", "supporting_ids")}
    return Question(**{**row, **lists, "structure": structure})


def _open(path: Path) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(path)
    except FileNotFoundError:
        raise DataError(f"{path} is missing; make it with parallelsearch questions import.") from None
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a whole parquet file ({error}); {NEXT_STEP}.") from None
    found = file.schema_arrow
    if not found.equals(SCHEMA) or PROVENANCE_KEY not in (found.metadata or {}):
        file.close()
        raise DataError(f"{path} is no question file: {_difference(found)}; {NEXT_STEP}.")
    return file


def _difference(found: pa.Schema) -> str:
    absent = [name for name in SCHEMA.names if name not in found.names]
    if absent:
        return f"it lacks the columns {', '.join(absent)}"
    for expected in SCHEMA:
        if not found.field(expected.name).equals(expected):
            return f"column {expected.name} is {found.field(expected.name).type}, expected {expected.type}"
    further = [name for name in found.names if name not in SCHEMA.names]
    return f"it has the further columns {', '.join(further)}" if further else "its footer does not say where it is from"


def _metadata(path: Path, file: pq.ParquetFile) -> dict[str, Any]:
    try:
        values = json.loads(file.schema_arrow.metadata[PROVENANCE_KEY])
        return {name: values[name] for name in Provenance.__dataclass_fields__}
    except (ValueError, KeyError):
        raise DataError(f"{path} has a damaged footer; {NEXT_STEP}.") from None
