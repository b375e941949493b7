"""The child's side: limits for itself, and its end of the socket, which is standard input.

It opens no file (its descriptor limit is what it starts with), starts no process, and has no environment but what it
needs to start; its memory is capped. It ends when the other end of its socket closes. (Linux can end a child with its
parent, but means the thread that started it, which may be gone long before.) Everything must be imported before the
limits are set: afterwards no module can be read.
"""

import contextlib
import os
import resource
import signal
from collections.abc import Callable

from runtimes.sandbox.frames import HEADER, READY, pack

SOCKET = 0
_STANDARD_FILES = 3


def serve(answer: Callable[[bytes], bytes], memory_bytes: int) -> None:
    """Answers frames until the parent is gone."""
    for ended_by_parent in (signal.SIGINT, signal.SIGTERM):  # a drain still needs it
        signal.signal(ended_by_parent, signal.SIG_IGN)
    _confine(memory_bytes)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        send(pack(READY))
        while True:
            (length,) = HEADER.unpack(_read(HEADER.size))
            send(answer(_read(length)))


def _confine(memory_bytes: int) -> None:
    for kind, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, _STANDARD_FILES),
        (resource.RLIMIT_AS, memory_bytes),
    ):
        allowed = resource.getrlimit(kind)[1]
        lowest = limit if allowed == resource.RLIM_INFINITY else min(limit, allowed)
        resource.setrlimit(kind, (lowest, lowest))


def _read(n_bytes: int) -> bytes:
    chunks = bytearray()
    while len(chunks) < n_bytes:
        chunk = os.read(SOCKET, min(n_bytes - len(chunks), 2**20))
        if not chunk:
            raise EOFError
        chunks += chunk
    return bytes(chunks)


def send(frame: bytes) -> None:
    view = memoryview(frame)
    while view:
        view = view[os.write(SOCKET, view) :]
