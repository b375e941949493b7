"""Which web pages may call, and what their browser is told."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.errors import Forbidden
from appliance.security.origins import OriginPolicy, is_preflight, preflight_headers, response_headers
from appliance.settings import ConfigError

DEFAULT = OriginPolicy()


def _origin(*values: str) -> list[tuple[bytes, bytes]]:
    return [(b"host", b"localhost"), *((b"origin", value.encode("latin-1")) for value in values)]


def test_a_program_sends_no_origin_and_passes() -> None:
    assert DEFAULT.check(_origin()) is None


@pytest.mark.parametrize(
    "origin",
    ["http://localhost:3000", "https://localhost", "http://127.0.0.1:8080", "http://[::1]:5173", "http://ui.localhost"],
)
def test_a_page_of_this_machine_passes(origin: str) -> None:
    assert DEFAULT.check(_origin(origin)) == origin


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "https://evil.example",
        "http://localhost.evil.example",
        "ftp://localhost",
        "file://",
        "localhost:3000",
        "http://localhost/",
        "http://localhost:3000/x",
        "http://user@localhost",
        "chrome-extension://abc",
        "http://",
        "://",
    ],
)
def test_any_other_page_is_refused(origin: str) -> None:
    with pytest.raises(Forbidden, match="allowed_origins"):
        DEFAULT.check(_origin(origin))


def test_two_origins_are_refused_even_if_both_are_good() -> None:
    with pytest.raises(Forbidden):
        DEFAULT.check(_origin("http://localhost", "http://localhost"))


def test_a_configured_origin_is_exact_in_scheme_host_and_port() -> None:
    policy = OriginPolicy(("https://Chat.example.com", "http://gpu-box.lan:3000", "app://obsidian.md"))
    for good in (
        "https://chat.example.com",
        "https://chat.example.com:443",
        "http://gpu-box.lan:3000",
        "app://obsidian.md",
    ):
        assert policy.check(_origin(good)) == good
    for bad in ("http://chat.example.com", "https://chat.example.com:8443", "http://gpu-box.lan", "app://other"):
        with pytest.raises(Forbidden):
            policy.check(_origin(bad))


@pytest.mark.parametrize(
    "entry", ["*", "chat.example.com", "https://a/b", "https://a b", "null", "https://*.example.com"]
)
def test_a_configured_origin_that_is_none_is_named(entry: str) -> None:
    with pytest.raises(ConfigError, match="allowed_origins"):
        OriginPolicy((entry,))


def test_a_preflight_is_told_the_headers_the_page_asked_for() -> None:
    asked = [
        (b"access-control-request-method", b"POST"),
        (b"access-control-request-headers", b"authorization,content-type,x-stainless-os"),
    ]
    assert is_preflight("OPTIONS", asked)
    assert not is_preflight("OPTIONS", [])
    assert not is_preflight("POST", asked)
    answer = dict(preflight_headers("http://localhost:3000", asked))
    assert answer[b"access-control-allow-origin"] == b"http://localhost:3000"
    assert answer[b"access-control-allow-headers"] == b"authorization,content-type,x-stainless-os"
    assert b"POST" in answer[b"access-control-allow-methods"]
    assert answer[b"vary"] == b"Origin"
    assert b"access-control-allow-private-network" not in answer


def test_a_preflight_from_another_network_is_told_that_it_may() -> None:
    answer = dict(preflight_headers("http://localhost", [(b"access-control-request-private-network", b"true")]))
    assert answer[b"access-control-allow-private-network"] == b"true"


def test_requested_headers_that_are_no_header_names_are_not_repeated() -> None:
    answer = dict(preflight_headers("http://localhost", [(b"access-control-request-headers", b"a\x01b: c")]))
    assert b"access-control-allow-headers" not in answer


def test_cookies_are_never_invited() -> None:
    assert b"access-control-allow-credentials" not in dict(response_headers("http://localhost"))


@given(st.binary(max_size=60))
def test_any_bytes_pass_or_are_forbidden(value: bytes) -> None:
    with contextlib.suppress(Forbidden):
        DEFAULT.check([(b"origin", value)])
