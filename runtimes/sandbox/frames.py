"""What goes between a process and its sandboxed child: msgpack behind a 4-byte length, one answer a question.

The child says READY once, when it is up. Pure; it knows no sockets.
"""

import struct
from typing import Any

import msgpack

HEADER = struct.Struct(">I")
READY = "ready"


def pack(value: object) -> bytes:
    """A frame. Raises ValueError, OverflowError or TypeError for what msgpack cannot carry."""
    body: bytes = msgpack.packb(value)
    return HEADER.pack(len(body)) + body


def unpack(body: bytes) -> Any:
    return msgpack.unpackb(body)
