"""Which names this daemon answers to: the defence against DNS rebinding.

A web page may point a name of its own at 127.0.0.1 and then talk to the daemon as its "own" server; the browser
still sends that name as `Host`. So a request is answered only under a name that cannot be an attacker's. Pure.
"""

import ipaddress
import re
from collections.abc import Sequence
from typing import Final

from appliance.errors import Forbidden, InvalidRequest
from appliance.security.headers import Headers, values
from appliance.settings import ConfigError

_AUTHORITY = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9._-]{1,255}))(?::(?P<port>[0-9]{0,5}))?"
)
_WILDCARD_BINDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not bound to


def parse_authority(text: str) -> tuple[str, int | None]:
    """`host[:port]` as (host in lower case, without brackets and a final dot; port). Raises ValueError."""
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:100]!r} is not a host name or address with an optional port")
    port = int(match["port"]) if match["port"] else None
    if port is not None and port > 65535:
        raise ValueError(f"{port} is not a port")
    if match["v6"] is not None:
        return str(ipaddress.IPv6Address(match["v6"])), port
    host = match["name"].lower().removesuffix(".")
    if not host or ".." in host or host.startswith("."):
        raise ValueError(f"{text[:100]!r} has an empty label")
    return host, port


def is_loopback_address(host: str) -> bool:
    """Whether it is an address that only this machine can use, also as IPv6 writes an IPv4 one."""
    address = _address(host)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address is not None and address.is_loopback


def is_loopback_host(host: str) -> bool:
    """Whether `host`, as `parse_authority` gives it, always means this machine (browsers pin *.localhost to it)."""
    return host == "localhost" or host.endswith(".localhost") or is_loopback_address(host)


class HostPolicy:
    def __init__(self, bind_host: str, allowed: Sequence[str] = ()) -> None:
        """`bind_host` is `server.host`; `allowed` are names, or "*.example.com" for every name below that one.

        Raises `ConfigError` for an entry that is neither.
        """
        names: set[str] = set()
        suffixes: list[str] = []
        for entry in allowed:
            below, pattern = (".", entry[2:]) if entry.startswith("*.") else ("", entry)
            try:
                host, port = parse_authority(f"[{pattern}]" if _is_bare_ipv6(pattern) else pattern)
            except ValueError as error:
                raise ConfigError("security.allowed_hosts", f"{entry!r} is no host: {error}") from None
            if port is not None or (below and _address(host) is not None):
                raise ConfigError("security.allowed_hosts", f"{entry!r}: write a name alone, without a port")
            if below:
                suffixes.append(below + host)
            else:
                names.add(host)
        bind = bind_host.lower().strip("[]")
        self._any_address = bind in _WILDCARD_BINDS
        self._names = frozenset(names | {bind} - _WILDCARD_BINDS)
        self._suffixes = tuple(suffixes)

    def check(self, headers: Headers) -> None:
        """Raises `InvalidRequest` for a request that names no host or several, `Forbidden` for one not answered to."""
        hosts = values(headers, b"host")
        if len(hosts) != 1:
            raise InvalidRequest(f"A request needs exactly one Host header; this one has {len(hosts)}.", param="host")
        try:
            host, _ = parse_authority(hosts[0])
        except ValueError as error:
            raise InvalidRequest(f"The Host header is malformed: {error}.", param="host") from None
        if not self._answers_to(host):
            raise Forbidden(
                f"This daemon does not answer to the host {host!r}: its owner can add it to security.allowed_hosts.",
                param="host",
            )

    def _answers_to(self, host: str) -> bool:
        return (
            is_loopback_host(host)
            or host in self._names
            or host.endswith(self._suffixes)
            # Bound to every address, each of them is the bind address. Rebinding needs a name, never an address.
            or (self._any_address and _address(host) is not None)
        )


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_bare_ipv6(text: str) -> bool:
    return isinstance(_address(text), ipaddress.IPv6Address)
