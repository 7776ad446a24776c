"""A limit on the size of a request's body, kept before the body is in memory."""

from __future__ import annotations

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send


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
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if int(announced) > self.max_bytes:
            await self._refuse(scope, receive, send)
            return
        received = 0
        too_long = False

        async def counted() -> Message:
            nonlocal received, too_long
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.max_bytes:
                too_long = True
                return {"type": "http.disconnect"}
            return message

        async def unless_too_long(message: Message) -> None:
            if not too_long:
                await send(message)

        try:
            await self.app(scope, counted, unless_too_long)
        except ClientDisconnect:
            if not too_long:
                raise
        if too_long:
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        detail = f"the body has more than {self.max_bytes} bytes; send fewer queries at once."
        await JSONResponse({"detail": detail}, 413, {"Connection": "close"})(scope, receive, send)
