"""What happens in a daemon, live."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.integration.conftest import Launch
from tests.integration.daemon_fixture import Daemon, chat_body

EVENTS = "/admin/v1/events"
Event = tuple[str, dict[str, Any]]


@contextmanager
def listening(daemon: Daemon) -> Iterator[Iterator[Event]]:
    with daemon.client() as client, client.stream("GET", EVENTS) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield _events(response)


def _events(response: httpx.Response) -> Iterator[Event]:
    name = ""
    for line in response.iter_lines():
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


def test_the_status_comes_again_and_again(daemon: Daemon) -> None:
    with listening(daemon) as events:
        first, second = next(events), next(events)
    assert first[0] == second[0] == "status"
    assert second[1]["uptime_s"] > first[1]["uptime_s"]
    assert first[1].keys() == daemon.status().keys()


def test_each_change_of_the_breaker_comes_with_its_reason(daemon: Daemon) -> None:
    with listening(daemon) as events, daemon.client() as admin:
        assert next(events)[0] == "status"
        for action in ("trip", "reset"):
            admin.post("/admin/v1/breaker", json={"action": action}).raise_for_status()
        changes = (data for name, data in events if name == "breaker")
        first, second = next(changes), next(changes)
    assert (first["from"], first["to"], first["reason"]) == ("closed", "open", "owner")
    assert (second["from"], second["to"]) == ("open", "closed")


def test_who_only_listens_keeps_no_daemon_from_stopping(launch: Launch) -> None:
    daemon = launch().wait_ready()
    with listening(daemon) as events:
        next(events)
        daemon.terminate()
        assert all(name == "status" for name, _ in events)  # to its end, and not broken off


def test_listeners_that_leave_are_forgotten(daemon: Daemon) -> None:
    for _ in range(20):
        with listening(daemon) as events:
            next(events)
    with daemon.client() as client:
        assert client.post("/v1/chat/completions", json=chat_body()).status_code == 200
