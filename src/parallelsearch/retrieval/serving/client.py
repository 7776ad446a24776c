"""A retriever at a URL. Every failure is a RetrieverError: the caller records it, the model never reads it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from parallelsearch.errors import RetrieverError
from parallelsearch.files import read_json
from parallelsearch.records import Hit
from parallelsearch.retrieval.serving.wire import read_reply

HEAD_CHARACTERS = 160
# Failures of the connection itself: a search changes nothing on the server, so that it may be sent again.
CONNECTION_FAILURES = (httpx.ConnectError, httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)


class HttpRetriever:
    """Speaks to `parallelsearch retriever serve` or to Search-R1's retrieval server.

    `timeout` is in seconds and covers each single attempt; `attempts` counts the first one too. Only failures of the
    connection are tried again, never a status, a bad body or a time-out.
    """

    def __init__(self, url: str, timeout: float = 30.0, attempts: int = 3, max_wait: float = 2.0) -> None:
        self.url = url.rstrip("/").removesuffix("/retrieve")
        self.timeout = timeout
        self.attempts = attempts
        self.max_wait = max_wait
        self._clients: dict[asyncio.AbstractEventLoop, httpx.AsyncClient] = {}

    @classmethod
    def from_ready_file(cls, path: Path, **options: Any) -> HttpRetriever:
        """The server that wrote `path` (`retriever serve --ready-file`)."""
        return cls(read_json(path)["url"], **options)

    async def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """One request for all queries; hits of each, best first."""
        if not queries:
            return []
        body = {"queries": list(queries), "topk": top_k, "return_scores": True}
        reply = await self._request("POST", "/retrieve", body)
        return read_reply(_json(reply), len(queries), f"{self.url}/retrieve")

    async def wait_until_ready(self, seconds: float, interval: float = 0.25) -> dict[str, Any]:
        """Asks /ready until it says 200, and returns its description of the index; RetrieverError after `seconds`."""
        end = time.monotonic() + seconds
        while True:
            try:
                return _json(await self._request("GET", "/ready", None, attempts=1))
            except RetrieverError as error:
                if time.monotonic() + interval > end:
                    raise RetrieverError(
                        f"{self.url} was not ready after {seconds:g} s; last answer: {error}"
                    ) from None
            await asyncio.sleep(interval)

    async def close(self) -> None:
        """Closes the connections of the running event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client:
            await client.aclose()

    async def __aenter__(self) -> HttpRetriever:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _request(self, method: str, path: str, body: Any, attempts: int | None = None) -> httpx.Response:
        place = self.url + path
        tries = attempts or self.attempts
        retrying = AsyncRetrying(
            stop=stop_after_attempt(tries),
            wait=wait_random_exponential(multiplier=0.1, max=self.max_wait),
            retry=retry_if_exception_type(CONNECTION_FAILURES),
            reraise=True,
        )
        try:
            response: httpx.Response = await retrying(self._client().request, method, place, json=body)
        except httpx.TimeoutException as error:
            raise RetrieverError(
                f"{place} did not answer within {self.timeout:g} s ({type(error).__name__});"
                " raise the time-out or give the server more processors."
            ) from None
        except httpx.InvalidURL as error:
            raise RetrieverError(f"the retriever's URL '{self.url}' is not valid ({error}); correct it.") from None
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise RetrieverError(
                f"{place} could not be reached in {tries} attempts ({reason}); check that the server runs."
            ) from None
        if response.status_code != httpx.codes.OK:
            raise RetrieverError(f"{place} replied with status {response.status_code}: {_head(response)}")
        return response

    def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients = {known: client for known, client in self._clients.items() if not known.is_closed()}
            self._clients[loop] = httpx.AsyncClient(timeout=self.timeout, trust_env=False)
        return self._clients[loop]


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        kind = response.headers.get("content-type", "no content type")
        raise RetrieverError(
            f"{response.url} replied with {kind} instead of JSON, beginning {_head(response)};"
            " check that the URL is the retriever's."
        ) from None


def _head(response: httpx.Response) -> str:
    return repr(" ".join(response.text.split())[:HEAD_CHARACTERS])
