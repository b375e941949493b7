"""The child's side: limits for itself, and its end of the socket, which is standard input.

It opens no file (its descriptor limit is what it starts with), starts no program, and has no environment but what it
needs to start; its memory is capped. It ends when the other end of its socket closes. (Linux can end a child with its
parent, but means the thread that started it, which may be gone long before.) Everything must be imported before the
limits are set: afterwards no module can be read.
"""

import contextlib
import os
import resource
import signal
import traceback
from collections.abc import Callable, Iterable
from typing import NoReturn

from runtimes.sandbox.frames import HEADER, READY, pack

SOCKET = 0
_STANDARD_FILES = 3
_NO_FILES = (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE)
_GONE = (EOFError, BrokenPipeError, ConnectionResetError)
_PR_SET_PDEATHSIG = 1  # prctl(2)


def serve(answer: Callable[[bytes], bytes], memory_bytes: int) -> None:
    """Answers frames until the parent is gone."""
    _ignore_signals()
    _confine(memory_bytes, (*_NO_FILES, resource.RLIMIT_NPROC))
    with contextlib.suppress(*_GONE):
        send(pack(READY))
        while True:
            send(answer(_frame()))


def serve_in_forks(prepare: Callable[[bytes], bytes], answer: Callable[[bytes], bytes], memory_bytes: int) -> None:
    """Prepares from the first frame, and answers the others in a fork of itself, until the parent is gone.

    What may be ended by a timer is the fork: the parent is told `{"died": SIGNAL}`, and the next fork has all that was
    prepared, in milliseconds. (To start and prepare a process takes half a second of a core, which a model has to do
    without.) Needs a process of one thread, since no other comes along into a fork.
    """
    import ctypes  # noqa: PLC0415 - not every child needs it

    _ignore_signals()
    libc = ctypes.CDLL(None)
    _confine(memory_bytes, _NO_FILES)
    with contextlib.suppress(*_GONE):
        send(pack(READY))
        send(prepare(_frame()))
        while True:
            child = os.fork()
            if child == 0:
                libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                _answer_in_fork(answer, memory_bytes)
            _, status = os.waitpid(child, 0)
            if not os.WIFSIGNALED(status):
                return
            send(pack({"died": os.WTERMSIG(status)}))


def _answer_in_fork(answer: Callable[[bytes], bytes], memory_bytes: int) -> NoReturn:
    _confine(memory_bytes, (*_NO_FILES, resource.RLIMIT_NPROC))
    try:
        with contextlib.suppress(*_GONE):
            while True:
                send(answer(_frame()))
    except BaseException:  # noqa: BLE001 - whatever it was, this process must not go on as its parent
        traceback.print_exc()
        os.kill(os.getpid(), signal.SIGABRT)
    os._exit(0)


def _ignore_signals() -> None:
    for ended_by_parent in (signal.SIGINT, signal.SIGTERM):  # a drain still needs it
        signal.signal(ended_by_parent, signal.SIG_IGN)


def _confine(memory_bytes: int, to_nothing: Iterable[int]) -> None:
    nothing = [(kind, 0) for kind in to_nothing]
    for kind, limit in (*nothing, (resource.RLIMIT_NOFILE, _STANDARD_FILES), (resource.RLIMIT_AS, memory_bytes)):
        allowed = resource.getrlimit(kind)[1]
        lowest = limit if allowed == resource.RLIM_INFINITY else min(limit, allowed)
        resource.setrlimit(kind, (lowest, lowest))


def _frame() -> bytes:
    (length,) = HEADER.unpack(_read(HEADER.size))
    return _read(length)


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
