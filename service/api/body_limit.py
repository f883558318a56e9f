"""A bound on what is sent to the API, kept while it comes in."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import LastpageError

MAX_BODY_BYTES = 16 * 2**20
"""A `repro.yaml` of many requests, as JSON, takes some of that."""


class BodyTooLarge(LastpageError, HTTPException):
    """A body has more bytes than are taken."""

    def __init__(self, at_least: int) -> None:
        super().__init__(413, f"the body is too large; allowed: up to {MAX_BODY_BYTES:,} bytes")
        self.at_least = at_least


class BodyLimit:
    """Around an application: whoever reads a body that is too large gets `BodyTooLarge` instead of it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "")
        announced = int(length) if length.isdecimal() and len(length) < 20 else 0
        came = 0

        async def limited() -> Message:
            nonlocal came
            if announced > MAX_BODY_BYTES:
                raise BodyTooLarge(announced)
            message = await receive()
            came += len(message.get("body", b""))
            if came > MAX_BODY_BYTES:
                raise BodyTooLarge(came)
            return message

        await self._app(scope, limited, send)
