"""The one door to the outside: every connection that leaves this machine is asked for here first.

Who wants to connect names a target and the privacy of what goes there. In offline mode, and for what must stay on this
machine, the answer is an exception before a name is looked up or a socket opened. Nothing else in the product opens
connections; the model store's downloads are handed `check_download`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import httpx

from appliance.protocol import Privacy

PRIVACY: Final = "privacy"  # the request extension that says what may be done with it
_KEPT_OPEN: Final = httpx.Limits(max_connections=256, max_keepalive_connections=32, keepalive_expiry=60.0)


class EgressRefused(Exception):
    """A connection was not opened."""

    def __init__(self, why: Literal["offline", "local-only"], target: str) -> None:
        super().__init__(f"{target} was not connected to: {_REASONS[why]}")
        self.why = why


_REASONS: Final = {
    "offline": "the appliance is offline",
    "local-only": "the request must not leave this machine",
}


@dataclass(frozen=True, slots=True)
class GateCounts:
    """Since the start."""

    permitted: int
    refused: int


class EgressGate:
    def __init__(self, *, offline: bool) -> None:
        self._offline = offline
        self._permitted = self._refused = 0
        self._closing: list[Callable[[], None]] = []

    @property
    def offline(self) -> bool:
        return self._offline

    @property
    def counts(self) -> GateCounts:
        return GateCounts(self._permitted, self._refused)

    def on_closing(self, end: Callable[[], None]) -> None:
        """`end` is called when the appliance goes offline: what is under way must stop."""
        self._closing.append(end)

    def set_offline(self, *, offline: bool) -> None:
        self._offline = offline
        if offline:
            for end in self._closing:
                end()

    def check(self, target: str, privacy: Privacy) -> None:
        """Raises `EgressRefused`. `target` is a host, for the message."""
        self.foresee(target, privacy)
        self._permitted += 1

    def foresee(self, target: str, privacy: Privacy) -> None:
        """Raises `EgressRefused` as `check` would, for who is not about to connect yet."""
        if self._offline or privacy == "local-only":
            self._refused += 1
            raise EgressRefused("offline" if self._offline else "local-only", target)

    def check_download(self, target: str) -> None:
        """For a model's file, which holds nothing of a user's. Raises `EgressRefused`."""
        self.check(target, "any")

    def client(self, proxy: str | None = None) -> httpx.AsyncClient:
        """Asks the gate before every request, also a retried one. It follows no redirect, which could carry a key to
        another host, and reads no proxy or password from the environment. A request without its `PRIVACY` extension
        counts as one that must stay."""
        inner = httpx.AsyncHTTPTransport(http2=True, limits=_KEPT_OPEN, trust_env=False, proxy=proxy)
        return httpx.AsyncClient(transport=_Gated(self, inner), follow_redirects=False, trust_env=False)


class _Gated(httpx.AsyncBaseTransport):
    def __init__(self, gate: EgressGate, inner: httpx.AsyncBaseTransport) -> None:
        self._gate = gate
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._gate.check(request.url.host, request.extensions.get(PRIVACY, "local-only"))
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()
