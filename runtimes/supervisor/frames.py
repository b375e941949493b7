"""A worker's frames as they arrive in the event loop: a message is taken in the very callback that brings its last
byte. A stream reader in between costs two more turns of the loop for each token."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from runtimes.worker import messages
from runtimes.worker.messages import LENGTH, MAX_FRAME_BYTES


class Frames(asyncio.Protocol):
    """What comes before `deliver` is called waits for it. A peer that sends what is no message is cut off.

    `decode` raises `ValueError` for a frame's body that is none.
    """

    def __init__(self, decode: Callable[[bytes], Any] = messages.decode) -> None:
        self._decode = decode
        self._buffer = bytearray()
        self._early: deque[Any] = deque()
        self._take: Callable[[Any], None] = self._early.append
        self._transport: asyncio.Transport | None = None
        self._arrived = asyncio.Event()
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment] # a socket has one that writes; uvloop's is no subclass

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self.ended.set()
        self._arrived.set()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        position, end = 0, len(self._buffer)
        while end - position >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._buffer, position)
            start = position + LENGTH.size
            if length > MAX_FRAME_BYTES:
                self._cut_off()
                return
            if end - start < length:
                break
            try:
                message = self._decode(bytes(self._buffer[start : start + length]))
            except ValueError:
                self._cut_off()
                return
            position = start + length
            self._take(message)
        del self._buffer[:position]
        self._arrived.set()

    async def first(self) -> Any | None:
        """The first message, or None when none will come."""
        while not self._early and not self.ended.is_set():
            self._arrived.clear()
            await self._arrived.wait()
        return self._early.popleft() if self._early else None

    async def deliver(self, take: Callable[[Any], None]) -> None:
        """Gives every message to `take`, until the connection ends."""
        while self._early:
            take(self._early.popleft())
        self._take = take
        await self.ended.wait()

    def _cut_off(self) -> None:
        self._buffer.clear()
        if self._transport is not None:
            self._transport.abort()
