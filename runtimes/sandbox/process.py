"""One sandboxed child, from outside: start it, ask it, end it. It knows frames and deadlines, not what is asked."""

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from runtimes.sandbox.frames import HEADER, READY, unpack

START_LIMIT_S = 20.0  # it takes 0.1 s; a machine that loads a model from a cold disk may take its time
PACKAGE_ROOT = Path(__file__).parents[2]


class SandboxProcess:
    """Not thread-safe, but for `kill`."""

    def __init__(self, module: str) -> None:
        """Starts `python -m MODULE` and does not wait for it. Raises OSError."""
        self._socket, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603 - a module of ours
                    [sys.executable, "-P", "-s", "-m", module],
                    stdin=theirs.fileno(),
                    stdout=2,  # whatever it prints is for the log; a confined worker may not open /dev/null
                    cwd="/",
                    env=_environment(),
                )
        except BaseException:
            self._socket.close()
            raise
        self._ready = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, frame: bytes, limit_s: float, reply_limit_bytes: int) -> Any:
        """The answer to a frame. The time to start is not counted.

        Raises TimeoutError, EOFError when the process is gone, and ValueError when what comes back is no answer.
        After any of these the process must be killed.
        """
        if not self._ready:
            if self._receive(time.monotonic() + START_LIMIT_S, reply_limit_bytes) != READY:
                raise ValueError("the child did not greet")
            self._ready = True
        deadline_s = time.monotonic() + limit_s
        try:
            self._socket.settimeout(limit_s)
            self._socket.sendall(frame)
        except (BrokenPipeError, ConnectionResetError):
            raise EOFError from None
        return self._receive(deadline_s, reply_limit_bytes)

    def kill(self) -> None:
        """Ends the process; may be called from any thread, and again."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        self._socket.close()

    def _receive(self, deadline_s: float, limit_bytes: int) -> Any:
        (length,) = HEADER.unpack(self._read(HEADER.size, deadline_s))
        if length > limit_bytes:
            raise ValueError(f"the child announced {length} bytes")
        return unpack(self._read(length, deadline_s))

    def _read(self, n_bytes: int, deadline_s: float) -> bytes:
        received = bytearray()
        while len(received) < n_bytes:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self._socket.settimeout(left_s)
            chunk = b""
            with suppress(ConnectionResetError):
                chunk = self._socket.recv(min(n_bytes - len(received), 2**20))
            if not chunk:
                raise EOFError
            received += chunk
        return bytes(received)


def _environment() -> dict[str, str]:
    """What the process needs to find this package and the time zone; keys and tokens of its parent are not among it."""
    # NumPy's library would start threads, which nothing here has work for and which keep a process from forking safely.
    kept = {"PYTHONPATH": str(PACKAGE_ROOT), "LC_ALL": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    if "TZ" in os.environ:
        kept["TZ"] = os.environ["TZ"]
    return kept
