"""A second try waits as long as the provider asks, or for a random time that grows; whatever it sends is read."""

import json
import random
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback.retry import FIRST_PAUSE_S, LONGEST_PAUSE_S, RETRIED, pause_s, retry_after_s

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def asked(headers: dict[str, str] | None = None, body: Any = None) -> float | None:
    return retry_after_s(httpx.Headers(headers or {}), body, NOW)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_statuses_that_may_pass_are_tried_again(status: int) -> None:
    assert status in RETRIED


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 501])
def test_statuses_that_will_stay_are_not(status: int) -> None:
    assert status not in RETRIED


@given(attempt=st.integers(1, 10), seed=st.integers())
def test_a_pause_is_random_within_a_bound_that_doubles(attempt: int, seed: int) -> None:
    bound_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (attempt - 1))
    assert bound_s / 2 <= pause_s(attempt, None, random.Random(seed)) <= bound_s


def test_two_that_failed_together_do_not_try_again_together() -> None:
    rng = random.Random(1)
    assert len({pause_s(1, None, rng) for _ in range(100)}) == 100


@given(after_s=st.floats(0, 1e7), attempt=st.integers(1, 10), seed=st.integers())
def test_a_pause_is_never_shorter_than_the_provider_asks(after_s: float, attempt: int, seed: int) -> None:
    assert after_s <= pause_s(attempt, after_s, random.Random(seed)) <= 1.1 * after_s + 0.06


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "20"}, 20.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": "Sun, 01 Mar 2026 12:01:30 GMT"}, 90.0),
        ({"retry-after": "Sun, 01 Mar 2026 13:01:30 +0100"}, 90.0),
        ({"retry-after": "Sun, 01 Mar 2026 12:01:30 -0000"}, 90.0),
        ({"retry-after": "Sun, 01 Mar 2026 11:00:00 GMT"}, 0.0),  # over already
    ],
)
def test_headers_say_how_long(headers: dict[str, str], seconds: float) -> None:
    assert asked(headers) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "soon", "-5", "nan", "inf", "-inf", "1e300", "9" * 500, "Sun, 99 Mar 2026 99:99:99 GMT", "Sun,", ","]
)
@pytest.mark.parametrize("name", ["retry-after", "retry-after-ms"])
def test_headers_that_make_no_sense_say_nothing(name: str, text: str) -> None:
    assert asked({name: text}) is None


def test_a_header_goes_before_the_body() -> None:
    assert asked({"retry-after": "3"}, {"retry_after": 7}) == 3.0
    assert asked({"retry-after": "soon"}, {"retry_after": 7}) == 7.0


GOOGLE = {
    "error": {
        "code": 429,
        "message": "You exceeded your current quota.",
        "status": "RESOURCE_EXHAUSTED",
        "details": [
            {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": "PerDay"}]},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"},
        ],
    }
}


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        ({"retry_after": 7}, 7.0),
        ({"error": {"message": "slow down", "retry_after": "7"}}, 7.0),
        ({"error": {"metadata": {"retryAfter": 0.5}}}, 0.5),
        ({"retry_after": "soon", "retryAfter": 2}, 2.0),
        (GOOGLE, 34.07),
    ],
)
def test_bodies_say_how_long_too(body: Any, seconds: float) -> None:
    assert asked(body=body) == pytest.approx(seconds)


def test_google_s_openai_endpoint_puts_the_same_into_a_list() -> None:
    assert asked(body=[GOOGLE]) == pytest.approx(34.07)


@pytest.mark.parametrize(
    "body",
    [None, "", 5, [], {}, {"retry_after": None}, {"retry_after": True}, {"retry_after": -1}, {"retry_after": [5]},
     {"retryDelay": "s"}, {"retryDelay": {}}, {"retry_after": 1e300}, {"retry_after": float("nan")}],
)  # fmt: skip
def test_bodies_that_make_no_sense_say_nothing(body: Any) -> None:
    assert asked(body=body) is None


def test_a_number_beyond_all_floats_is_no_time() -> None:
    assert asked(body=json.loads('{"retry_after": 1' + "0" * 400 + "}")) is None


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(("retry_after", "retryDelay", "error", "details", "x")), inner, max_size=4)
    ),
    max_leaves=30,
)


@given(header=st.text(st.characters(max_codepoint=126, min_codepoint=32), max_size=40), body=anything)
def test_whatever_is_sent_the_time_is_none_or_sensible(header: str, body: Any) -> None:
    seconds = asked({"retry-after": header}, body)
    assert seconds is None or seconds >= 0


def test_a_body_that_is_nested_without_end_is_not_followed() -> None:
    body: Any = {"retry_after": 5}
    for _ in range(500):
        body = {"error": [body]}
    assert asked(body=body) is None
