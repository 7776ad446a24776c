"""The servers that a client may ask: the least busy healthy one is next, a failing one rests and is looked at again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

FIRST_REST_SECONDS = 1.0
LONGEST_REST_SECONDS = 30.0


@dataclass(slots=True)
class PooledServer:
    """One server: requests in flight, failures in a row, and the moment until which it rests."""

    url: str
    in_flight: int = 0
    failures: int = 0
    rests_until: float = 0.0


class ServerPool:
    """Servers that hold the same index. `clock` gives seconds."""

    def __init__(self, urls: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self.servers = [PooledServer(url.rstrip("/").removesuffix("/retrieve")) for url in urls]
        self._clock = clock

    def next(self, but_not: Sequence[PooledServer] = ()) -> PooledServer:
        """The least busy server that does not rest, if possible none of `but_not`; if all rest, the first to wake."""
        now = self._clock()
        awake = [server for server in self.servers if server.rests_until <= now]
        candidates = [server for server in awake if server not in but_not] or awake
        if candidates:
            return min(candidates, key=lambda server: server.in_flight)
        return min(self.servers, key=lambda server: server.rests_until)

    def wants_check(self, server: PooledServer) -> bool:
        """True for one of several that failed last time: it is asked whether it is ready before it gets work."""
        return server.failures > 0 and len(self.servers) > 1

    @contextmanager
    def request(self, server: PooledServer) -> Iterator[None]:
        """Counts a request as being in flight."""
        server.in_flight += 1
        try:
            yield
        finally:
            server.in_flight -= 1

    def failed(self, server: PooledServer) -> None:
        """Lets a server rest, twice as long after each failure in a row."""
        rest = min(FIRST_REST_SECONDS * 2**server.failures, LONGEST_REST_SECONDS)
        server.failures += 1
        server.rests_until = self._clock() + rest

    def answered(self, server: PooledServer) -> None:
        """Forgets the failures of a server."""
        server.failures, server.rests_until = 0, 0.0
