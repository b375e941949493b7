"""One bound on the bytes of request bodies that are held at a time, over all connections.

Limits on one body and on connections leave their product. A body counts from when its bytes are taken until its request
has ended, since what it says is held for as long. What uvicorn has read ahead of the application does not count: 64 KiB
a connection, and what one more read brings. Knows no body's meaning.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from appliance.errors import Overloaded


class BodyMemory:
    """ASGI middleware. The bytes that would be too many raise `Overloaded` in whoever wanted to receive them."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self.held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        of_this_bytes = 0

        async def counted() -> Message:
            nonlocal of_this_bytes
            message = await receive()
            size = len(message.get("body", b""))
            if self.held_bytes + size > self._max_bytes:
                raise Overloaded(
                    f"The bodies of all requests together may take {self._max_bytes} bytes "
                    "(server.max_held_body_bytes): try again soon."
                )
            self.held_bytes += size
            of_this_bytes += size
            return message

        try:
            await self._app(scope, counted, send)
        finally:
            self.held_bytes -= of_this_bytes
