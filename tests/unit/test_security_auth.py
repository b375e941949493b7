"""Who may do what: the decision alone."""

import pytest

from appliance.errors import Forbidden, InvalidApiKey
from appliance.security.auth import ANONYMOUS, LOCAL, access, authorize, presented_secret
from appliance.security.keys import ALL_SCOPES, KeyRecord, KeyScope


def _key(*scopes: KeyScope) -> KeyRecord:
    return KeyRecord("key_1", "laptop", frozenset(scopes), 60, 4, created_at=0.0)


@pytest.mark.parametrize(
    ("method", "path", "scopes", "generates"),
    [
        ("GET", "/healthz", set(), False),
        ("HEAD", "/readyz", set(), False),
        ("POST", "/healthz", ALL_SCOPES, False),
        ("GET", "/metrics", {"metrics", "admin"}, False),
        ("GET", "/v1/models", {"infer"}, False),
        ("POST", "/v1/chat/completions", {"infer"}, True),
        ("POST", "/v1/tasks/t1", {"infer"}, False),
        ("DELETE", "/v1/tasks/t1", {"infer"}, False),
        ("GET", "/v1", {"infer"}, False),
        ("GET", "/admin/v1/events", {"admin"}, False),
        ("PUT", "/admin/v1/offline", {"admin"}, False),
        ("POST", "/admin/v1/cache/feedback", {"infer", "admin"}, False),
        ("GET", "/admin/v1/cache/feedback", {"admin"}, False),
        ("DELETE", "/admin/v1/cache", {"admin"}, False),
        ("GET", "/administrator", ALL_SCOPES, False),
        ("GET", "/openapi.json", ALL_SCOPES, False),
        ("GET", "/healthz/x", set(), False),
        ("GET", "//admin/v1/status", ALL_SCOPES, False),
    ],
)
def test_each_path_asks_for_its_scope(method: str, path: str, scopes: set[KeyScope], generates: bool) -> None:  # noqa: FBT001 - a column
    needs = access(method, path)
    assert (set(needs.scopes), needs.generates) == (scopes, generates)


def test_a_key_comes_as_bearer_or_as_anthropic_clients_send_it() -> None:
    assert presented_secret([(b"authorization", b"Bearer sk-appl-a")]) == "sk-appl-a"
    assert presented_secret([(b"authorization", b"bearer   sk-appl-a ")]) == "sk-appl-a"
    assert presented_secret([(b"x-api-key", b"sk-appl-b")]) == "sk-appl-b"
    assert presented_secret([(b"authorization", b"Basic dTpw"), (b"x-api-key", b"sk-appl-b")]) == "sk-appl-b"


@pytest.mark.parametrize("value", [b"", b"Bearer", b"Bearer ", b"Basic dTpw", b"sk-appl-a"])
def test_anything_else_is_no_key(value: bytes) -> None:
    assert presented_secret([(b"authorization", value), (b"x-api-key", b"")]) is None


def test_without_keys_this_machine_is_served_whatever_key_its_clients_make_up() -> None:
    needs = access("GET", "/admin/v1/status")
    for presented in (False, True):
        who = authorize(presented=presented, record=None, has_keys=False, loopback_client=True, needs=needs)
        assert who is LOCAL


def test_without_keys_no_other_machine_is_served() -> None:
    with pytest.raises(Forbidden, match="keys create"):
        authorize(presented=True, record=None, has_keys=False, loopback_client=False, needs=access("GET", "/v1/models"))


def test_with_keys_this_machine_needs_one_too() -> None:
    needs = access("POST", "/v1/chat/completions")
    with pytest.raises(InvalidApiKey, match="needed"):
        authorize(presented=False, record=None, has_keys=True, loopback_client=True, needs=needs)
    with pytest.raises(InvalidApiKey, match="unknown or revoked"):
        authorize(presented=True, record=None, has_keys=True, loopback_client=True, needs=needs)


def test_health_is_open_to_everyone() -> None:
    for loopback in (True, False):
        who = authorize(
            presented=False, record=None, has_keys=True, loopback_client=loopback, needs=access("GET", "/healthz")
        )
        assert who is ANONYMOUS


def test_a_key_does_what_its_scopes_say_and_carries_its_limits() -> None:
    who = authorize(
        presented=True,
        record=_key("infer"),
        has_keys=True,
        loopback_client=False,
        needs=access("POST", "/v1/embeddings"),
    )
    assert (who.id, who.name, who.requests_per_minute, who.max_concurrent) == ("key_1", "laptop", 60, 4)


@pytest.mark.parametrize(
    ("scope", "path"),
    [("infer", "/admin/v1/status"), ("infer", "/metrics"), ("admin", "/v1/models"), ("metrics", "/admin")],
)
def test_a_scope_is_not_another(scope: KeyScope, path: str) -> None:
    with pytest.raises(Forbidden, match=scope):
        authorize(presented=True, record=_key(scope), has_keys=True, loopback_client=True, needs=access("GET", path))


@pytest.mark.parametrize("scope", ["metrics", "admin"])
def test_metrics_are_read_with_either_of_two_scopes(scope: KeyScope) -> None:
    who = authorize(
        presented=True, record=_key(scope), has_keys=True, loopback_client=True, needs=access("GET", "/metrics")
    )
    assert who.id == "key_1"
