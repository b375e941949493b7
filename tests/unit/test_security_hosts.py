"""Which Host headers are answered."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.errors import Forbidden, InvalidRequest
from appliance.security.hosts import HostPolicy, is_loopback_address, parse_authority
from appliance.settings import ConfigError

LOOPBACK = HostPolicy("127.0.0.1")


def _host(*values: str) -> list[tuple[bytes, bytes]]:
    return [(b"accept", b"*/*"), *((b"host", value.encode("latin-1")) for value in values)]


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8484",
        "LocalHost:1",
        "localhost.",
        "app.localhost:3000",
        "127.0.0.1",
        "127.0.0.1:65535",
        "127.8.9.10",
        "[::1]",
        "[::1]:8484",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
        "localhost:",
    ],
)
def test_names_of_this_machine_are_answered_with_any_port(host: str) -> None:
    LOOPBACK.check(_host(host))


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "evillocalhost",
        "127.0.0.1.evil.example",
        "128.0.0.1",
        "0.0.0.0",
        "[::]",
        "[::2]",
        "192.168.1.5:8484",
        "127.1",
        "0x7f000001",
        "2130706433",
    ],
)
def test_any_other_name_is_refused(host: str) -> None:
    with pytest.raises(Forbidden, match="allowed_hosts"):
        LOOPBACK.check(_host(host))


@pytest.mark.parametrize(
    "host",
    [
        "",
        ":80",
        "a b",
        "localhost:x",
        "localhost:99999",
        "localhost:80:80",
        "[::1",
        "::1",
        "[1.2.3.4.5]",
        "user@localhost",
        "localhost/",
        "http://localhost",
        "loc\xe4lhost",
        "..",
        ".",
        "a..b",
        "[fe80::1%25eth0]",
        "localhost,evil.example",
    ],
)
def test_a_malformed_host_is_a_bad_request(host: str) -> None:
    with pytest.raises(InvalidRequest):
        LOOPBACK.check(_host(host))


def test_a_request_needs_exactly_one_host() -> None:
    with pytest.raises(InvalidRequest, match="has 0"):
        LOOPBACK.check(_host())
    with pytest.raises(InvalidRequest, match="has 2"):
        LOOPBACK.check(_host("localhost", "localhost"))


def test_the_bind_address_is_answered_and_its_neighbour_is_not() -> None:
    policy = HostPolicy("192.168.1.5")
    policy.check(_host("192.168.1.5:8484"))
    with pytest.raises(Forbidden):
        policy.check(_host("192.168.1.6:8484"))


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "[::]"])
def test_bound_to_every_address_any_address_is_answered_but_no_name(bind: str) -> None:
    policy = HostPolicy(bind)
    policy.check(_host("192.168.1.5:8484"))
    policy.check(_host("[2001:db8::7]"))
    with pytest.raises(Forbidden):
        policy.check(_host("evil.example"))


def test_a_configured_name_is_exact_and_a_pattern_means_names_below_it() -> None:
    policy = HostPolicy("127.0.0.1", ("GPU-Box.lan", "*.example.com", "10.0.0.7", "fd00::7"))
    for good in ("gpu-box.lan:8484", "a.example.com", "a.b.example.com", "10.0.0.7", "[fd00::7]:1"):
        policy.check(_host(good))
    for bad in ("x.gpu-box.lan", "example.com", "evilexample.com", "example.com.evil.example", "10.0.0.8"):
        with pytest.raises(Forbidden):
            policy.check(_host(bad))


@pytest.mark.parametrize("entry", ["*", "*.", "http://a", "a:80", "a/b", "", "*.10.0.0.1", "a,b", "**.a"])
def test_a_configured_host_that_is_none_is_named(entry: str) -> None:
    with pytest.raises(ConfigError, match="allowed_hosts"):
        HostPolicy("127.0.0.1", (entry,))


@given(st.binary(max_size=60))
def test_any_bytes_are_answered_or_refused_with_our_errors(value: bytes) -> None:
    with contextlib.suppress(InvalidRequest, Forbidden):
        LOOPBACK.check([(b"host", value)])


LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)


@given(st.lists(LABEL, min_size=1, max_size=4), st.none() | st.integers(0, 65535))
def test_a_name_survives_the_reading_of_it(labels: list[str], port: int | None) -> None:
    host = ".".join(labels)
    assert parse_authority(host.upper() + ("" if port is None else f":{port}")) == (host, port)


@given(st.lists(LABEL, min_size=1, max_size=4).map(".".join))
def test_no_name_outside_localhost_is_answered(host: str) -> None:
    if host == "localhost" or host.endswith(".localhost") or is_loopback_address(host):
        LOOPBACK.check(_host(host))
    else:
        with pytest.raises(Forbidden):
            LOOPBACK.check(_host(host))
