"""Published numbers (config/published/*.yaml): data with a source and caveats, validated when read."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from parallelsearch.config import Section
from parallelsearch.config_files import CONFIG_DIR, read_yaml, validated
from parallelsearch.records import Structure

PUBLISHED_DIR = CONFIG_DIR / "published"
PARALLELSEARCH = "parallelsearch.yaml"  # the paper whose weights ablation_grid compares


class Source(Section):
    """Where the numbers were published."""

    title: str
    arxiv: str


class PublishedRow(Section):
    """One row of a published table. Shares lie between 0 and 1, seconds are per question, absent figures are None."""

    table: int
    method: str
    model: str
    subset: str
    structure: Structure | None = None
    lambda_d: float | None = None
    lambda_s: float | None = None
    em: float = Field(ge=0, le=1)
    decomposition_ratio: float | None = Field(None, ge=0, le=1)
    seconds: float | None = Field(None, gt=0)
    turns: float | None = Field(None, ge=1)
    caveats: list[str] = Field(default_factory=list)


class WideRow(Section):
    """One row of a published table that has a column for each subset: its EM by subset."""

    table: int
    method: str
    model: str
    caveats: list[str] = Field(default_factory=list)
    em: dict[str, float] = Field(min_length=1)


class Subset(Section):
    """The questions of ours that a published subset names: a data set, or those of it with one structure."""

    dataset: str
    structure: Structure | None = None


class Published(Section):
    """All rows of one publication. `arms` says which arm of ours answers to a published method."""

    source: Source
    arms: dict[str, str] = Field(default_factory=dict)
    subsets: dict[str, Subset]
    caveats: dict[str, str]
    rows: list[PublishedRow] = Field(default_factory=list)
    wide: list[WideRow] = Field(default_factory=list)

    @property
    def every_row(self) -> list[PublishedRow]:
        """`rows`, and a row for each subset of `wide`."""
        return [
            *self.rows,
            *(
                PublishedRow(**row.model_dump(exclude={"em"}), subset=subset, em=em)
                for row in self.wide
                for subset, em in row.em.items()
            ),
        ]

    @model_validator(mode="after")
    def _is_consistent(self) -> Published:
        seen = set()
        for number, row in enumerate(self.every_row, 1):
            if row.subset not in self.subsets:
                raise ValueError(f"row {number} has the subset '{row.subset}', which is not among subsets.")
            unknown = [caveat for caveat in row.caveats if caveat not in self.caveats]
            if unknown:
                raise ValueError(f"row {number} has the caveat '{unknown[0]}', which is not among caveats.")
            key = (row.table, row.method, row.model, row.subset, row.lambda_d, row.lambda_s)
            if key in seen:
                raise ValueError(f"row {number} (Table {row.table}, {row.method}, {row.subset}) stands there twice.")
            seen.add(key)
        return self

    def ablation_row(self, subset: str, lambda_d: float, lambda_s: float) -> PublishedRow | None:
        """The row of Table 4 for a subset and a pair of weights, if it was published."""
        for row in self.rows:
            if row.table == 4 and row.subset == subset and (row.lambda_d, row.lambda_s) == (lambda_d, lambda_s):
                return row
        return None


def read_all_published(folder: Path = PUBLISHED_DIR) -> list[Published]:
    """Every file of `folder`, by name."""
    return [read_published(path) for path in sorted(folder.glob("*.yaml"))]


def read_published(path: Path = PUBLISHED_DIR / PARALLELSEARCH) -> Published:
    """A file of published numbers; a fault is a ConfigError that names the file and the key."""
    return validated(Published, read_yaml(path), str(path))
