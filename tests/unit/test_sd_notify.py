"""The service manager hears what sd_notify(3) says it should. The manager here is a real datagram socket."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.service.sd_notify import Notifier


class Manager:
    def __init__(self, address: str | bytes, name: str) -> None:
        self.name = name
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(5)
        self.socket.bind(address)

    def heard(self) -> list[str]:
        return self.socket.recv(65536).decode().split("\n")


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    if request.param == "path":
        path = str(tmp_path / "notify")
        manager = Manager(path, path)
    else:
        name = f"appliance-test-{os.getpid()}-{time.monotonic_ns()}"
        manager = Manager(b"\0" + name.encode(), f"@{name}")
    with manager.socket:
        yield manager


def test_each_state_arrives_as_one_datagram(manager: Manager) -> None:
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": manager.name})
    assert notifier.active
    assert notifier.ready("serving smollm2")
    assert manager.heard() == ["READY=1", "STATUS=serving smollm2"]
    assert notifier.status("3 of 16 slots")
    assert manager.heard() == ["STATUS=3 of 16 slots"]
    assert notifier.alive()
    assert manager.heard() == ["WATCHDOG=1"]
    assert notifier.stopping()
    assert manager.heard() == ["STOPPING=1"]


def test_a_reload_carries_the_time_it_began_on_the_shared_clock(manager: Manager) -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    assert Notifier(manager.name).reloading()
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    state, moment = manager.heard()
    assert state == "RELOADING=1"
    assert moment.startswith("MONOTONIC_USEC=")
    assert before <= int(moment.removeprefix("MONOTONIC_USEC=")) <= after


def test_a_status_cannot_smuggle_in_another_assignment(manager: Manager) -> None:
    assert Notifier(manager.name).status("all well\nSTOPPING=1\r\0é")
    assert manager.heard() == ["STATUS=all well STOPPING=1  é"]


def test_a_long_status_is_cut_between_characters(manager: Manager) -> None:
    assert Notifier(manager.name).status("é" * 5000 + "\ud800")
    (line,) = manager.heard()
    assert line == "STATUS=" + "é" * 512


def test_without_a_manager_nothing_happens() -> None:
    notifier = Notifier.from_environment({"WATCHDOG_USEC": "1000000"})
    assert not notifier.active
    assert notifier.watchdog_s is None
    assert not any((notifier.ready(), notifier.status("x"), notifier.reloading(), notifier.alive()))


@pytest.mark.parametrize("address", ["/nowhere/at/all", "@nobody-listens-here", "vsock:2:1234", "/" + "x" * 300])
def test_a_manager_that_cannot_be_reached_is_no_error(address: str) -> None:
    assert not Notifier(address).ready("x")


def test_a_manager_that_does_not_read_never_blocks_the_daemon(manager: Manager) -> None:
    notifier = Notifier(manager.name)
    assert any(not notifier.alive() for _ in range(100_000)), "its queue has to be full at some point"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),  # meant for another process
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "me"}, None),
    ],
)
def test_the_watchdog_interval_comes_from_the_environment(environ: dict[str, str], expected: float | None) -> None:
    assert Notifier.from_environment({"NOTIFY_SOCKET": "/run/x", **environ}).watchdog_s == expected
