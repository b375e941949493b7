"""One kept connection, and requests over it one after another: a client that takes some 0.05 ms of its own.

Knows enough of HTTP/1.1 for answers that say their length.
"""

import contextlib
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.bench.errors import BadResponseError
from tests.bench.load import Address

TIMEOUT_S: Final = 30.0
_RECEIVED: Final = 65_536


@dataclass(frozen=True, slots=True)
class Reply:
    seconds: float  # from before the first byte was sent until the last one was here
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes


class Connection:
    def __init__(self, to: socket.socket, host: str) -> None:
        self._socket = to
        self._host = host

    def get(self, path: str) -> Reply:
        return self._asked(f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())

    def post(self, path: str, body: bytes) -> Reply:
        head = f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
        return self._asked(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def _asked(self, message: bytes) -> Reply:
        began_s = time.perf_counter()
        self._socket.sendall(message)
        received, head_end, whole = b"", -1, -1
        while whole < 0 or len(received) < whole:
            piece = self._socket.recv(_RECEIVED)
            if not piece:
                raise BadResponseError("the connection was closed within an answer")
            received += piece
            if whole < 0 and (head_end := received.find(b"\r\n\r\n")) >= 0:
                whole = head_end + 4 + _length(received[:head_end])
        seconds = time.perf_counter() - began_s
        status_line, *lines = received[:head_end].decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return Reply(seconds, int(status_line.split()[1]), headers, received[head_end + 4 :])


@contextlib.contextmanager
def connected(address: Address) -> Iterator[Connection]:
    with socket.create_connection((address.host, address.port), TIMEOUT_S) as to:
        to.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield Connection(to, f"{address.host}:{address.port}")


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise BadResponseError("an answer does not say its length")
