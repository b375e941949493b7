"""Whether a request may do what it asks: a pure decision over its headers, its path and the key it presents.

Without any key the daemon serves its own machine: everyone who reaches the loopback socket is the principal `local`.
Once a key was made, every path but the health checks needs one. Knows neither where keys are kept nor limits.
"""

from dataclasses import dataclass
from typing import Final

from appliance.errors import Forbidden, InvalidApiKey
from appliance.protocol import Private
from appliance.security.headers import Headers, values
from appliance.security.keys import ALL_SCOPES, KeyRecord, KeyScope


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. `id` is a key's id, or "local"; it is what limits count by."""

    id: str
    name: str
    scopes: frozenset[KeyScope]
    requests_per_minute: int | None = None  # None: the daemon's default
    max_concurrent: int | None = None
    local_only: bool = False
    redact: frozenset[Private] = frozenset()


LOCAL: Final = Principal("local", "local", ALL_SCOPES)
ANONYMOUS: Final = Principal("anonymous", "anonymous", frozenset())


@dataclass(frozen=True, slots=True)
class Access:
    """What a path asks of its caller."""

    path: str  # itself and all below it
    methods: frozenset[str] | None  # None: every method
    scopes: frozenset[KeyScope]  # one of them is enough; none at all: open to everyone, and never counted
    generates: bool = False  # it uses the engine, and so counts against `max_concurrent` while it lasts


_PROBE = frozenset({"GET", "HEAD"})
_INFER: frozenset[KeyScope] = frozenset({"infer"})
_ADMIN: frozenset[KeyScope] = frozenset({"admin"})

# The first row that matches decides. Only work for the engine holds a concurrency slot: a monitor that watches the
# event stream all day holds none, and a client at its limit can still cancel a task.
ACCESS: Final = (
    Access("/healthz", _PROBE, frozenset()),
    Access("/readyz", _PROBE, frozenset()),
    Access("/metrics", None, frozenset({"metrics", "admin"})),
    Access("/admin/v1/cache/feedback", frozenset({"POST"}), _INFER | _ADMIN),  # of one's own hits; an admin's of all
    Access("/admin", None, _ADMIN),
    Access("/v1/tasks", None, _INFER),
    Access("/v1", frozenset({"POST"}), _INFER, generates=True),
    Access("/v1", None, _INFER),
)
# The API's own description, or a 404: nothing secret, but nothing for a stranger either.
ELSEWHERE: Final = Access("/", None, ALL_SCOPES)


def access(method: str, path: str) -> Access:
    """What `method` on `path` (decoded, as the router sees it) needs."""
    for row in ACCESS:
        if (path == row.path or path.startswith(row.path + "/")) and (row.methods is None or method in row.methods):
            return row
    return ELSEWHERE


def presented_secret(headers: Headers) -> str | None:
    """The key in `Authorization: Bearer`, or in `x-api-key` as Anthropic's clients send it. None: there is none."""
    for value in values(headers, b"authorization"):
        scheme, _, secret = value.partition(" ")
        if scheme.lower() == "bearer" and secret.strip():
            return secret.strip()
    return next((value for value in values(headers, b"x-api-key") if value), None)


def authorize(
    *, presented: bool, record: KeyRecord | None, has_keys: bool, loopback_client: bool, needs: Access
) -> Principal:
    """Who the caller is. Raises `InvalidApiKey` or `Forbidden`.

    `presented`: the request carried a secret; `record`: the active key it belongs to.
    """
    if not needs.scopes:
        return ANONYMOUS
    if not has_keys:
        if not loopback_client:
            raise Forbidden(
                "No API key exists, so only this machine itself is served: its owner can run `appliance keys create`."
            )
        return LOCAL
    if record is None:
        raise InvalidApiKey(
            "The API key is unknown or revoked: `appliance keys list` shows the active ones."
            if presented
            else "An API key is needed: send it as 'Authorization: Bearer sk-appl-…' or 'x-api-key: sk-appl-…'. "
            "`appliance keys create` makes one."
        )
    if not record.scopes & needs.scopes:
        raise Forbidden(
            f"The key {record.name!r} has the scope {_either(record.scopes)}; this path needs {_either(needs.scopes)}."
        )
    return Principal(
        id=record.id,
        name=record.name,
        scopes=record.scopes,
        requests_per_minute=record.requests_per_minute,
        max_concurrent=record.max_concurrent,
        local_only=record.local_only,
        redact=record.redact,
    )


def _either(scopes: frozenset[KeyScope]) -> str:
    return " or ".join(sorted(scopes))
