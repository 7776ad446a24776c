"""The base of all sections."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator
from pydantic_core import PydanticCustomError


class Section(BaseModel):
    """A part of the configuration: frozen, and closed to keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _can_be_an_argument(cls, value: Any) -> Any:
        if isinstance(value, str) and "\0" in value:
            raise PydanticCustomError("nul", "text without the character NUL is wanted")
        return value
