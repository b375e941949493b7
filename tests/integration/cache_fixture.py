"""A daemon's cache seen from outside: questions with one right answer, where their answers came from, what was said.

Knows the public interface only.
"""

import itertools
from typing import Any

from tests.integration.daemon_fixture import Daemon, chat_body, wait_until

CACHED: dict[str, object] = {"cache.enabled": True}
KNOWN = range(6)  # questions that a filled cache has the answers to
SLOW_S = 60.0  # on a machine that is busy with other tests

new = itertools.count(1000)  # questions that nobody has asked yet


def question(number: int) -> dict[str, Any]:
    """A request with one right answer, that ends by itself."""
    return chat_body(f"What is item {number}?", max_tokens=100, structured_outputs={"choice": [answer(number)]})


def answer(number: int) -> str:
    return f"Item {number} is this one:" + f" {number}" * (1 + number % 3)


def ask(daemon: Daemon, number: int) -> str:
    """The route. Fails unless the answer is the right one."""
    with daemon.client() as client:
        response = client.post("/v1/chat/completions", json=question(number))
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (answer(number), "stop")
    route: str = response.headers["x-appliance-route"]
    return route


def ask_twice(daemon: Daemon) -> str:
    """Something new; the route of the second answer."""
    number = next(new)
    assert ask(daemon, number) == "local"
    return ask(daemon, number)


def wait_cached(daemon: Daemon) -> None:
    """New answers are kept, and the known ones known."""
    wait_until(lambda: ask_twice(daemon) == "cache-exact", "the cache works", SLOW_S)
    for number in KNOWN:
        wait_until(lambda: ask(daemon, number) == "cache-exact", "what was asked is known", SLOW_S)  # noqa: B023
    assert status(daemon)["problem"] is None


def status(daemon: Daemon) -> dict[str, Any]:
    with daemon.client() as client:
        assert client.get("/readyz").status_code == 200
        found: dict[str, Any] = client.get("/admin/v1/cache").json()
    return found


def said(daemon: Daemon, since: int = 0) -> list[str]:
    """What the log says of the cache, from its line `since` on. Fails where it says anything twice."""
    records = [record for record in list(daemon.log.records())[since:] if record["logger"].startswith("cache")]
    told = [f"{record['event']}: {record.get('reason', '')}" for record in records]
    assert len(set(told)) == len(told), told
    return told


def wait_said(daemon: Daemon, words: str, since: int = 0) -> list[str]:
    """What the log says, once it says that of the cache, in `since` lines or after."""

    def reasons() -> list[str] | None:
        found = said(daemon, since)
        return found if any(words in reason for reason in found) else None

    found: list[str] = wait_until(reasons, f"the log says {words!r} of the cache", SLOW_S)
    return found


def lines(daemon: Daemon) -> int:
    """Of the log, so far."""
    return len(list(daemon.log.records()))
