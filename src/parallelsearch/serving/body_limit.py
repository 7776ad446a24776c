"""A limit on the size of a request's body, kept before the body is in memory."""

from __future__ import annotations

from contextlib import suppress

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

READ_AND_DROPPED = 8  # times the limit: a client that is still sending when the connection closes never sees the reply


class BodyLimit:
    """Answers 413 to a body of more than `max_bytes`, whether its length was announced or not."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self.app = app
        self.max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        received = 0
        more = True

        async def counted() -> Message:
            nonlocal received, more
            message = await receive()
            received += len(message.get("body", b""))
            more = bool(message.get("more_body"))
            return {"type": "http.disconnect"} if received > self.max_bytes else message

        async def unless_too_long(message: Message) -> None:
            if received <= self.max_bytes:
                await send(message)

        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if int(announced) <= self.max_bytes:
            with suppress(ClientDisconnect):  # nobody is there to answer, or the body was too long
                await self.app(scope, counted, unless_too_long)
            if received <= self.max_bytes:
                return
        while more and received < self.max_bytes * READ_AND_DROPPED:
            await counted()
        detail = f"the body has more than {self.max_bytes} bytes; send fewer queries at once."
        await JSONResponse({"detail": detail}, 413, {"Connection": "close"})(scope, receive, send)
