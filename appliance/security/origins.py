"""Which web pages may call the daemon, and the CORS headers that tell their browser so.

A program sends no Origin and is not asked for one. A browser sends it with every cross-site call that can change or
read something, so a page from elsewhere is refused before anything else is looked at. Pure.
"""

import re
from collections.abc import Sequence
from typing import Final

from appliance.errors import Forbidden
from appliance.security.headers import Headers, values
from appliance.security.hosts import is_loopback_host, parse_authority
from appliance.settings import ConfigError

RawHeaders = list[tuple[bytes, bytes]]

_ORIGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://([^/?#\s]{1,300})")
_HEADER_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,4096}")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_PREFLIGHT_MAX_AGE_S = 600  # what Chromium and Firefox both honour; long enough to ask once a session
_METHODS = b"GET, HEAD, POST, PUT, DELETE, OPTIONS"


class OriginPolicy:
    def __init__(self, allowed: Sequence[str] = ()) -> None:
        """`allowed` are origins such as "https://chat.example.com:3000". Raises `ConfigError` for any other entry."""
        origins: set[str] = set()
        for entry in allowed:
            parsed = _parse(entry)
            if parsed is None:
                raise ConfigError(
                    "security.allowed_origins",
                    f"{entry!r} is no origin: write scheme and host alone, such as 'https://gpu-box.lan:3000'",
                )
            origins.add(parsed[0])
        self._allowed = frozenset(origins)

    def check(self, headers: Headers) -> str | None:
        """The allowed origin, as it was sent; None for a caller that is no web page. Raises `Forbidden`."""
        origins = values(headers, b"origin")
        if not origins:
            return None
        parsed = _parse(origins[0]) if len(origins) == 1 else None  # "null" has no scheme
        if parsed is None or not (parsed[0] in self._allowed or parsed[1]):
            raise Forbidden(
                f"Pages from the origin {', '.join(origins)[:100]!r} may not use this daemon: "
                "its owner can add the origin to security.allowed_origins.",
                param="origin",
            )
        return origins[0]


def is_preflight(method: str, headers: Headers) -> bool:
    """Whether a browser asks if it may send the real request."""
    return method == "OPTIONS" and bool(values(headers, b"access-control-request-method"))


def response_headers(origin: str) -> RawHeaders:
    """What an answer to an allowed origin carries. No credentials mode: keys travel in headers, never in cookies."""
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", b"*"),
        (b"vary", b"Origin"),
    ]


def preflight_headers(origin: str, headers: Headers) -> RawHeaders:
    """The answer to a preflight: any header the page names, since client libraries add their own."""
    answer = [
        *response_headers(origin),
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-max-age", b"%d" % _PREFLIGHT_MAX_AGE_S),
    ]
    requested = ", ".join(values(headers, b"access-control-request-headers"))
    if _HEADER_NAMES.fullmatch(requested):
        answer.append((b"access-control-allow-headers", requested.encode("ascii")))
    if values(headers, b"access-control-request-private-network") == ["true"]:  # Chromium, page on another network
        answer.append((b"access-control-allow-private-network", b"true"))
    return answer


def _parse(text: str) -> tuple[str, bool] | None:
    """The origin in one spelling, and whether it is a web page of this machine. None: it is no origin."""
    match = _ORIGIN.fullmatch(text)
    if match is None:
        return None
    scheme = match[1].lower()
    if scheme not in _DEFAULT_PORTS:  # an extension's or a desktop shell's: its host is an opaque name
        return f"{scheme}://{match[2].lower()}", False
    try:
        host, port = parse_authority(match[2])
    except ValueError:
        return None
    return f"{scheme}://{host}:{port or _DEFAULT_PORTS[scheme]}", is_loopback_host(host)
