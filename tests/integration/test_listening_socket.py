"""Where the daemon may listen, and what it says when it may not."""

import os
import resource
import socket

import pytest

from appliance.service.listen import check_bind, connections_within, open_listener, raise_open_files_limit
from appliance.settings import ConfigError

GRACE_S = 5.0  # a busy machine may be late; whoever waits this long waits for ever


def test_a_port_in_use_is_named_with_who_uses_it() -> None:
    with open_listener("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"server\.port: port {port} is in use by .* \(process {os.getpid()}\)"):
            open_listener("127.0.0.1", port)


def test_a_listener_is_ready_for_an_event_loop() -> None:
    with open_listener("127.0.0.1", 0) as listener:
        assert not listener.getblocking()
        assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
        with socket.create_connection(listener.getsockname(), timeout=GRACE_S):
            pass


def test_an_address_of_another_machine_cannot_be_listened_on() -> None:
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1 is no address of this machine"):
        open_listener("192.0.2.1", 0)


@pytest.mark.parametrize(
    ("host", "address"), [("localhost", "127.0.0.1"), ("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("[::1]", "::1")]
)
def test_loopback_is_served_without_keys(host: str, address: str) -> None:
    assert check_bind(host, has_keys=False) == address


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "2001:db8::1"])
def test_beyond_loopback_a_key_is_needed_first(host: str) -> None:
    with pytest.raises(ConfigError, match="appliance keys create"):
        check_bind(host, has_keys=False)
    assert check_bind(host, has_keys=True) == host


@pytest.mark.parametrize("host", ["", "[]", "no such host", "a..b", "\x00", "x" * 300])
def test_a_host_that_is_none_is_a_configuration_error(host: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.host"):
        check_bind(host, has_keys=True)


def test_the_open_files_limit_is_raised_to_what_is_allowed() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] // 2, before[1]))
        assert raise_open_files_limit() == before[1]
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    ("open_files", "connections"), [(1 << 20, 4096), (1024, 896), (200, 100), (1, 1), (resource.RLIM_INFINITY, 4096)]
)
def test_connections_leave_files_for_all_else(open_files: int, connections: int) -> None:
    assert connections_within(open_files, 4096) == connections
