"""The listening socket: where the daemon may be reached, and how many connections it can hold.

An address beyond this machine is refused while no API key exists: that is the one mistake that would hand the GPU, and
what is asked of it, to a whole network. Knows nothing of HTTP.
"""

import errno
import os
import resource
import socket

import psutil

from appliance.security.hosts import is_loopback_address
from appliance.settings import ConfigError

BACKLOG = 2048  # connections the kernel completes before they are accepted; it cuts this to net.core.somaxconn


# For databases, workers, connections to providers, and clients that are being refused. At rest the daemon has 16 open.
FILES_BESIDE_CONNECTIONS = 128


def check_bind(host: str, *, has_keys: bool) -> str:
    """The numeric address for `host` (a name or an address). Raises `ConfigError`.

    Listen on what is returned: a name that is resolved once more could resolve to something else.
    """
    address = _resolve(host)
    if not has_keys and not is_loopback_address(address):
        raise ConfigError(
            "server.host",
            f"{host!r} can be reached from other machines and there is no API key, so that anyone there could use the "
            "daemon: run `appliance keys create` first, or set server.host to 127.0.0.1",
        )
    return address


def open_listener(address: str, port: int) -> socket.socket:
    """A listening, non-blocking TCP socket; port 0 takes a free one. Raises `ConfigError` when it cannot be had."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a restart need not wait for old connections
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # "::" is every address, IPv4's too
        listener.bind((address, port))
        listener.listen(BACKLOG)
        listener.settimeout(0)  # non-blocking
    except OSError as error:
        listener.close()
        raise _explain(address, port, error) from error
    return listener


def raise_open_files_limit() -> int:
    """Lets the process open as many files as it is allowed to, one being a connection each. Returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # macOS says "unlimited" and then takes no more than the kernel's own limit
            return soft
    return hard


def connections_within(open_files: int, wanted: int) -> int:
    """How many of the `wanted` connections a process may hold that may open so many files: half of them at least."""
    if open_files == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, max(open_files // 2, open_files - FILES_BESIDE_CONNECTIONS)))


def forbid_core_files() -> None:
    """A core file would hold keys, and what users asked."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _resolve(host: str) -> str:
    name = host.removeprefix("[").removesuffix("]")
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM) if name else []
    except (OSError, UnicodeError) as error:
        raise ConfigError("server.host", f"{host!r} cannot be resolved: {error}") from None
    if not found:
        raise ConfigError("server.host", f"{host!r} is no address: write 127.0.0.1, or an address of this machine")
    ipv4 = [entry for entry in found if entry[0] == socket.AF_INET]  # of "localhost", what every client tries
    return str((ipv4 or found)[0][4][0])


def _explain(address: str, port: int, error: OSError) -> ConfigError:
    place = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            "server.port", f"port {port} is in use{_holder(port)}: stop what uses it, or choose another port"
        )
    if error.errno == errno.EACCES:
        return ConfigError("server.port", f"{place} needs privileges: choose a port from 1024 on")
    if error.errno == errno.EADDRNOTAVAIL:
        return ConfigError("server.host", f"{address} is no address of this machine")
    return ConfigError("server.host", f"cannot listen on {place}: {os.strerror(error.errno or 0)}")


def _holder(port: int) -> str:
    """Who listens on the port, as far as this user may see."""
    try:
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
            if listens and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (process {connection.pid})"
    except (psutil.Error, OSError):
        pass
    return ""
