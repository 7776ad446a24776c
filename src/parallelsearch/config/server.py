"""Language models behind a URL."""

from __future__ import annotations

from pydantic import Field

from parallelsearch.config.names import VariableName, WebAddress
from parallelsearch.config.section import Section


class ServerConfig(Section):
    """A language model behind an OpenAI-compatible URL."""

    url: WebAddress = Field(description="Base of the server's address, such as http://127.0.0.1:8000/v1.")
    model: str = Field(description="Name of the model there.")
    key_variable: VariableName = Field(
        "OPENAI_API_KEY", description="Environment variable that holds the server's key, if any."
    )
    timeout: float = Field(60.0, gt=0, description="Seconds of one request.")
    longest_wait: float = Field(10.0, ge=0, description="Seconds, at most, between two attempts.")
