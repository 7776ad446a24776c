"""A retriever at a URL. Every failure is a RetrieverError: the caller records it, the model never reads it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from parallelsearch.errors import (
    MismatchError,
    RetrieverError,
    RetrieverOverloaded,
    RetrieverRefused,
    RetrieverTimeout,
    RetrieverUnreachable,
)
from parallelsearch.files import read_json
from parallelsearch.records import Hit
from parallelsearch.retrieval.serving.pool import PooledServer, ServerPool
from parallelsearch.retrieval.serving.wire import TOKEN_VARIABLE, read_reply
from parallelsearch.secret import authorisation, without_secrets

HEAD_CHARACTERS = 160
CHECK_SECONDS = 2.0  # of asking a server that failed whether it is ready again
# Failures of the connection itself: a search changes nothing on the server, so that it may be sent again.
CONNECTION_FAILURES = (httpx.ConnectError, httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)
# The server queues and refuses; a limit of connections here would only hide waiting requests from it.
NO_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=None)
LATER = (httpx.codes.SERVICE_UNAVAILABLE, httpx.codes.TOO_MANY_REQUESTS)


class HttpRetriever:
    """Speaks to `parallelsearch retriever serve` or to Search-R1's retrieval server; to several that hold one index.

    `timeout` is in seconds and covers each single attempt; `attempts` counts the first one too. A broken connection and
    a full queue (503) are tried again, on another server if there is one, after a random and growing pause of at most
    `max_wait` seconds; a refusal, a bad body and a time-out are not. A token is taken from the environment
    (PARALLELSEARCH_RETRIEVER_TOKEN).
    """

    def __init__(self, *urls: str, timeout: float = 30.0, attempts: int = 3, max_wait: float = 2.0) -> None:
        self.pool = ServerPool(urls)
        self.timeout = timeout
        self.attempts = attempts
        self.max_wait = max_wait
        self._pause = wait_random_exponential(multiplier=0.1, max=max_wait)
        self._clients: dict[asyncio.AbstractEventLoop, httpx.AsyncClient] = {}

    @classmethod
    def from_ready_file(cls, *paths: Path, **options: Any) -> HttpRetriever:
        """The servers that wrote `paths` (`retriever serve --ready-file`)."""
        return cls(*(read_json(path)["url"] for path in paths), **options)

    async def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """One request for all queries; hits of each, best first."""
        if not queries:
            return []
        body = {"queries": list(queries), "topk": top_k, "return_scores": True}
        retrying = AsyncRetrying(
            stop=stop_after_attempt(self.attempts),
            wait=self._wait,
            retry=retry_if_exception_type((RetrieverUnreachable, RetrieverOverloaded)),
            reraise=True,
        )
        tried: list[PooledServer] = []
        reply: httpx.Response = await retrying(self._attempt, body, tried)
        return read_reply(_json(reply), len(queries), f"{tried[-1].url}/retrieve")

    async def wait_until_ready(self, seconds: float, interval: float = 0.25) -> dict[str, Any]:
        """Asks /ready until every server says 200, and returns their description of the index.

        RetrieverError after `seconds`, MismatchError when the servers describe different indexes.
        """
        end = time.monotonic() + seconds
        first, *others = [await self._wait_for(server, seconds, end, interval) for server in self.pool.servers]
        for server, description in zip(self.pool.servers[1:], others, strict=True):
            if description != first:
                raise MismatchError(
                    f"{server.url} serves {description}, but {self.pool.servers[0].url} {first};"
                    " start both with the same index."
                )
        return first

    async def _wait_for(self, server: PooledServer, seconds: float, end: float, interval: float) -> dict[str, Any]:
        while True:
            try:
                return _json(await self._send("GET", f"{server.url}/ready"))
            except RetrieverError as error:
                if time.monotonic() + interval > end:
                    raise RetrieverError(
                        f"{server.url} was not ready after {seconds:g} s; last answer: {error}"
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

    async def _attempt(self, body: dict[str, Any], tried: list[PooledServer]) -> httpx.Response:
        server = self.pool.next(but_not=tried)
        tried.append(server)
        try:
            if self.pool.wants_check(server):
                await self._check(server)
            with self.pool.request(server):
                response = await self._send("POST", f"{server.url}/retrieve", body, tries=len(tried))
        except (RetrieverUnreachable, RetrieverTimeout):
            self.pool.failed(server)
            raise
        self.pool.answered(server)
        return response

    async def _check(self, server: PooledServer) -> None:
        try:
            await self._send("GET", f"{server.url}/ready", seconds=CHECK_SECONDS)
        except RetrieverTimeout as error:  # the search itself was not sent: another server may have it
            raise RetrieverUnreachable(str(error)) from None
        except RetrieverRefused:
            return  # a server without /ready, but alive

    def _wait(self, state: RetryCallState) -> float:
        asked_for = getattr(state.outcome and state.outcome.exception(), "retry_after", 0.0)
        return max(self._pause(state), min(asked_for, self.max_wait))

    async def _send(
        self, method: str, place: str, body: Any = None, seconds: float | None = None, tries: int = 1
    ) -> httpx.Response:
        """One attempt; every failure is a RetrieverError of its kind."""
        timeout = seconds or self.timeout
        try:
            response = await self._client().request(method, place, json=body, timeout=timeout)
        except httpx.TimeoutException as error:
            raise RetrieverTimeout(
                f"{place} did not answer within {timeout:g} s ({type(error).__name__});"
                " raise the time-out or give the server more processors."
            ) from None
        except httpx.InvalidURL as error:
            raise RetrieverError(f"the retriever's URL '{place}' is not valid ({error}); correct it.") from None
        except CONNECTION_FAILURES as error:
            reason = str(error) or type(error).__name__
            raise RetrieverUnreachable(
                f"{place} could not be reached in {tries} attempts ({reason}); check that the server runs."
            ) from None
        except httpx.HTTPError as error:
            raise RetrieverError(f"{place} could not be asked ({error}); check the address.") from None
        if response.status_code in LATER:
            later = response.headers.get("retry-after", "")
            raise RetrieverOverloaded(_status(place, response), float(later) if later.isdigit() else 0.0)
        if response.is_client_error:
            raise RetrieverRefused(_status(place, response))
        if response.status_code != httpx.codes.OK:
            raise RetrieverError(_status(place, response))
        return response

    def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients = {known: client for known, client in self._clients.items() if not known.is_closed()}
            try:
                headers = authorisation(TOKEN_VARIABLE)
            except ValueError as error:
                raise RetrieverError(str(error)) from None
            self._clients[loop] = httpx.AsyncClient(headers=headers, trust_env=False, limits=NO_LIMITS)
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


def _status(place: str, response: httpx.Response) -> str:
    return f"{place} replied with status {response.status_code}: {_head(response)}"


def _head(response: httpx.Response) -> str:
    # A secret is taken out before the text is cut: half of one would no longer be found.
    return repr(" ".join(without_secrets(response.text).split())[:HEAD_CHARACTERS])
