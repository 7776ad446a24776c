"""A language model behind an OpenAI-compatible URL: keys, time-outs, retries, and what went wrong in one sentence."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from weakref import WeakKeyDictionary

import httpx
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_random_exponential

from parallelsearch.config import ServerConfig
from parallelsearch.errors import EngineError, EngineRefused
from parallelsearch.secret import authorisation, without_secrets

ATTEMPTS = 4  # the first one counts
HEAD_CHARACTERS = 160
# How many requests are in flight is the caller's affair; a limit of connections here would only hide waiting ones.
NO_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=None)


class OpenAIClient:
    """Asks one server. In errors it is called `name`, and `key` is the section of the configuration that describes it.

    A broken connection, a time-out, 408, 429 and the server's own failures (5xx) are tried again after a random and
    growing pause: at least what the server asks for (Retry-After), at most server.longest_wait seconds. The server's
    key is read from the environment variable server.key_variable and stands nowhere else.
    """

    def __init__(self, server: ServerConfig, name: str, key: str) -> None:
        self.server = server
        self.name, self.key = name, key
        self._pause = wait_random_exponential(multiplier=0.2, max=server.longest_wait)
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The server's reply to `body`, to which the model's name is added.

        Raises EngineRefused where the server does not accept the request as it is, else EngineError.
        """
        place = f"{self.server.url.rstrip('/')}/{path}"
        retrying = AsyncRetrying(
            stop=stop_after_attempt(ATTEMPTS), wait=self._wait, retry=retry_if_exception(_may_pass), reraise=True
        )
        try:
            response: httpx.Response = await retrying(self._send, place, {"model": self.server.model, **body})
        except httpx.HTTPStatusError as error:
            raise self._refusal(place, error.response) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise EngineError(f"{self.name} at {place} did not answer ({reason}); check {self.key}.url.") from None
        try:
            return dict(response.json())
        except (ValueError, TypeError):
            raise self.unreadable(path, response.text) from None

    async def reply(self, message: str, begin: str = "", **options: Any) -> str:
        """What the model replies to one user message. Raises EngineError.

        With `begin` its reply is what follows these words (continue_final_message, which vLLM and `policy serve` know).
        """
        messages = [{"role": "user", "content": message}]
        body: dict[str, Any] = {"messages": messages, **options}
        if begin:
            messages.append({"role": "assistant", "content": begin})
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        value = await self.post("chat/completions", body)
        try:
            return self._hidden(str(value["choices"][0]["message"]["content"]))
        except (KeyError, IndexError, TypeError):
            raise self.unreadable("chat/completions", str(value)) from None

    def unreadable(self, path: str, text: str) -> EngineError:
        """The error for a reply that is not of the OpenAI kind."""
        return EngineError(
            f"{self.server.url.rstrip('/')}/{path} did not reply as an OpenAI-compatible server but with"
            f" {self._hidden(text)[:HEAD_CHARACTERS]!r}; {self.key}.url has to end before /{path}."
        )

    def _refusal(self, place: str, response: httpx.Response) -> EngineError:
        status = response.status_code
        said = f"status {status}: {' '.join(self._hidden(response.text).split())[:HEAD_CHARACTERS]}"
        next_step = f"check {self.key}.url and {self.key}.model."
        if status in (401, 403):
            next_step = f"put the server's key into the environment variable {self.server.key_variable}."
        kind = EngineRefused if status in (400, 422) else EngineError
        return kind(f"{self.name} at {place} did not answer ({said}); {next_step}")

    def _hidden(self, text: str) -> str:
        """What the server said, without its key: some repeat it."""
        return without_secrets(text, self.server.key_variable)

    async def _send(self, place: str, body: dict[str, Any]) -> httpx.Response:
        response = await self._client().post(place, json=body)
        response.raise_for_status()
        return response

    def _client(self) -> httpx.AsyncClient:
        """The connections of the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            try:
                headers = authorisation(self.server.key_variable)
            except ValueError as error:
                raise EngineError(str(error)) from None
            self._clients[loop] = httpx.AsyncClient(headers=headers, timeout=self.server.timeout, limits=NO_LIMITS)
        return self._clients[loop]

    def _wait(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked_for = _retry_after(error.response) if isinstance(error, httpx.HTTPStatusError) else 0.0
        return max(self._pause(state), min(asked_for, self.server.longest_wait))


def _may_pass(error: BaseException) -> bool:
    """Failures that may be gone at the next attempt: the connection, too many requests, the server's own."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code in (408, 429) or error.response.status_code >= 500
    return isinstance(error, httpx.TransportError) and not isinstance(error, httpx.UnsupportedProtocol)


def _retry_after(response: httpx.Response) -> float:
    """Seconds after which the server wants to be asked again: a number or a date; 0 where it says neither."""
    value = response.headers.get("retry-after", "")
    try:
        return float(value)
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return 0.0
