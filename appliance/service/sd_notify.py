"""Tells the service manager how the daemon is: sd_notify(3), spoken over its datagram socket.

Without a service manager ($NOTIFY_SOCKET unset) every call does nothing. None raises: a manager that is not there to
listen must not stop the daemon. Knows nothing of what the daemon does, nor when it should say so.
"""

import os
import socket
import time
from collections.abc import Mapping

_STATUS_BYTES = 1024  # a line of `systemctl status`; also far below what a datagram may carry


class Notifier:
    """Sends states to the service manager. Cheap enough to be called from the event loop: the socket never blocks."""

    def __init__(self, address: str | None, watchdog_s: float | None = None) -> None:
        """`address`: a socket's path, an abstract one's name after "@", or None for no manager."""
        self._address = _socket_address(address) if address else None
        self.watchdog_s = watchdog_s if self._address is not None else None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "Notifier":
        return cls(environ.get("NOTIFY_SOCKET"), _watchdog_s(environ))

    @property
    def active(self) -> bool:
        return self._address is not None

    def ready(self, status: str | None = None) -> bool:
        """The daemon can answer; also said after a reload."""
        return self._send("READY=1", _status_line(status))

    def status(self, text: str) -> bool:
        """One line for people, as `systemctl status` shows it."""
        return self._send(_status_line(text))

    def reloading(self) -> bool:
        """A reload begins; `ready` ends it."""
        # The manager orders this against its own signal by the clock that both share.
        return self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self, status: str | None = None) -> bool:
        return self._send("STOPPING=1", _status_line(status))

    def alive(self) -> bool:
        """To be said more often than every `watchdog_s`; half of it is customary."""
        return self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> bool:
        """Whether the message was handed over."""
        if self._address is None:
            return False
        message = "\n".join(line for line in lines if line).encode()
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.settimeout(0)
                sock.sendto(message, self._address)
        except OSError:
            return False
        return True


def _socket_address(given: str) -> str | bytes | None:
    """None for what is no Unix socket: a path is absolute, "@" stands for the NUL of an abstract name."""
    if given.startswith("@"):
        return b"\0" + os.fsencode(given[1:])
    return given if given.startswith("/") else None


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    """How often the manager wants to hear of us, if it does: sd_watchdog_enabled(3)."""
    try:
        interval_us = int(environ.get("WATCHDOG_USEC", "0"))
        pid = int(environ.get("WATCHDOG_PID", os.getpid()))
    except ValueError:
        return None
    return interval_us / 1e6 if interval_us > 0 and pid == os.getpid() else None


def _status_line(text: str | None) -> str:
    """A line of its own whatever the text is: a newline would begin another assignment."""
    if text is None:
        return ""
    plain = "".join(char if char.isprintable() else " " for char in text)
    return "STATUS=" + plain.encode(errors="replace")[:_STATUS_BYTES].decode(errors="ignore")
