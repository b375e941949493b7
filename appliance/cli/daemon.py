"""How a command reaches the daemon: the connection, the key, and what is said when nothing or an error answers."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from appliance.cli import CommandError

CONNECT_TIMEOUT_S = 5.0


class NoDaemon(CommandError):
    """Nothing listens there."""


@contextmanager
def connected(url: str, timeout_s: float | None = 30.0) -> Iterator[httpx.Client]:
    """A client for the daemon at `url`. HTTP's failures inside come out as `CommandError`."""
    key = os.environ.get("APPLIANCE_API_KEY")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
    try:
        # No proxy from the environment: the daemon is on this machine or beside it.
        with httpx.Client(base_url=url, headers=headers, timeout=timeout, trust_env=False) as client:
            yield client
    except (httpx.ConnectError, httpx.ConnectTimeout):
        raise NoDaemon(
            f"no daemon answers at {url}. Start it with `appliance serve` (or `make serve`), or name another with --url"
        ) from None
    except httpx.TimeoutException:
        raise CommandError(f"the daemon at {url} did not answer in time") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise CommandError(f"the daemon at {url} cannot be talked to: {error}") from None


def check(response: httpx.Response) -> None:
    """Raises `CommandError` with the daemon's own words unless it said yes. The body must have been read."""
    if response.is_success:
        return
    try:
        message = error_message(parsed(response.text))
    except CommandError:
        message = None
    hint = " Put a key into $APPLIANCE_API_KEY." if response.status_code == httpx.codes.UNAUTHORIZED else ""
    raise CommandError((message or f"the daemon answered HTTP {response.status_code}.") + hint)


def parsed(text: str) -> Any:
    """The JSON in an answer. Raises `CommandError`: then it is no daemon of ours that answered."""
    try:
        return json.loads(text)
    except ValueError:
        raise CommandError("what answers there is no inference appliance: it sent no JSON. Check --url") from None


def error_message(body: object) -> str | None:
    """What an error object of the API says; None for anything else."""
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        message = body["error"].get("message")
        return message if isinstance(message, str) else None
    return None
