"""Where jobs run, beside the environment that Snakemake was started from (docs/environments.md)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from parallelsearch.config.names import PlainPath
from parallelsearch.config.section import Section

_IMAGE = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9/.][A-Za-z0-9/._:@-]*$")]


class EnvironmentsConfig(Section):
    """Environments of jobs. Neither is part of a result: another one makes no job run again."""

    gpu: PlainPath | None = Field(
        None,
        description="Folder of the environment of `envs/install.sh gpu`, in which jobs on GPUs run; none: Snakemake's.",
    )
    container: _IMAGE | None = Field(
        None,
        description="Image in which every job runs with `snakemake --sdm apptainer`: a file, or docker://NAME:TAG.",
    )
