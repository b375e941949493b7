"""Request hints, from headers, metadata and the service tier."""

import pytest
from starlette.datastructures import Headers

from appliance.api.hints import ServiceTier, header_parameters, parse_hints
from appliance.errors import InvalidRequest
from appliance.protocol import Hints


def test_no_hint_is_a_normal_request_that_may_go_anywhere() -> None:
    assert parse_hints({}) == Hints()
    assert parse_hints({"content-type": "x", "x-other": "1"}, {"other": "1"}) == Hints()


ALL = Hints(task="t-1", step="plan", criticality="critical", cache="refresh", privacy="local-only", timeout_s=2.5)


def test_every_hint_can_be_a_header() -> None:
    headers = {
        "x-appliance-task": "t-1",
        "x-appliance-step": "plan",
        "x-appliance-criticality": "critical",
        "x-appliance-cache": "refresh",
        "x-appliance-privacy": "local-only",
        "x-appliance-timeout": "2.5",
    }
    assert parse_hints(headers) == ALL


def test_every_hint_can_be_metadata() -> None:
    metadata = {
        "task": "t-1",
        "step": "plan",
        "criticality": "critical",
        "cache": "refresh",
        "privacy": "local-only",
        "timeout_s": "2.5",
    }
    assert parse_hints({}, metadata) == ALL


def test_a_header_beats_metadata() -> None:
    hints = parse_hints({"x-appliance-task": "header", "x-appliance-timeout": "1"}, {"task": "meta", "timeout_s": "9"})
    assert (hints.task, hints.timeout_s) == ("header", 1.0)


@pytest.mark.parametrize(
    ("header", "metadata", "privacy"),
    [
        ("any", "local-only", "local-only"),
        ("local-only", "any", "local-only"),
        ("local-only", "local-only", "local-only"),
        ("any", "any", "any"),
        (None, "local-only", "local-only"),
    ],
)
def test_local_only_holds_wherever_it_is_said(header: str | None, metadata: str, privacy: str) -> None:
    headers = {} if header is None else {"x-appliance-privacy": header}
    assert parse_hints(headers, {"privacy": metadata}).privacy == privacy


@pytest.mark.parametrize(
    ("tier", "criticality"),
    [
        ("flex", "sheddable"),
        ("priority", "critical"),
        ("fast", "critical"),
        ("auto", "normal"),
        ("default", "normal"),
        ("scale", "normal"),
        (None, "normal"),
    ],
)
def test_the_service_tier_implies_a_criticality(tier: ServiceTier | None, criticality: str) -> None:
    assert parse_hints({}, None, tier).criticality == criticality


def test_an_explicit_criticality_beats_the_service_tier() -> None:
    assert parse_hints({"x-appliance-criticality": "normal"}, None, "flex").criticality == "normal"
    assert parse_hints({}, {"criticality": "critical"}, "flex").criticality == "critical"


@pytest.mark.parametrize("key", ["step", "criticality", "cache", "privacy", "task", "timeout_s"])
@pytest.mark.parametrize("value", ["", "x\x00y", "a\nb", "\u2028", "\ud800", "Ä" * 129])
def test_a_wrong_value_is_refused_and_names_its_place(key: str, value: str) -> None:
    header = "x-appliance-" + key.removesuffix("_s")
    for headers, metadata, param in (({header: value}, {}, header), ({}, {key: value}, f"metadata.{key}")):
        if value in ("\u2028", "\ud800") and headers:
            continue  # a header holds bytes: it cannot carry them
        with pytest.raises(InvalidRequest) as refusal:
            parse_hints(headers, metadata)
        assert refusal.value.param == param
        assert f"'{param}'" in refusal.value.message


@pytest.mark.parametrize(
    ("header", "allowed"),
    [
        ("x-appliance-step", "plan, extract, classify, summarize, transform, code, chat, synthesize"),
        ("x-appliance-criticality", "critical, normal, sheddable"),
        ("x-appliance-cache", "off, exact, semantic, refresh"),
        ("x-appliance-privacy", "any, local-only"),
    ],
)
def test_an_unknown_value_is_answered_with_the_known_ones(header: str, allowed: str) -> None:
    with pytest.raises(InvalidRequest, match=allowed):
        parse_hints({header: "Plan"})


def test_a_wrong_value_is_refused_even_where_another_place_would_win() -> None:
    with pytest.raises(InvalidRequest, match=r"metadata\.step"):
        parse_hints({"x-appliance-step": "plan"}, {"step": "nonsense"})


@pytest.mark.parametrize(
    "seconds",
    ["0", "0.0", "-1", "nan", "inf", "1e3", "1_0", "86400.1", "86401", "+5", "5s", "1.", ".5", "٣", "9" * 400],
)
def test_a_timeout_is_plain_seconds_up_to_a_day(seconds: str) -> None:
    with pytest.raises(InvalidRequest, match="'x-appliance-timeout'"):
        parse_hints({"x-appliance-timeout": seconds.encode().decode("latin-1")})
    with pytest.raises(InvalidRequest, match=r"'metadata\.timeout_s'"):
        parse_hints({}, {"timeout_s": seconds})


@pytest.mark.parametrize(("text", "seconds"), [("30", 30.0), ("0.001", 0.001), ("86400", 86400.0), (" 5 ", 5.0)])
def test_good_timeouts(text: str, seconds: float) -> None:
    assert parse_hints({"x-appliance-timeout": text}).timeout_s == seconds


def test_a_task_of_128_characters_fits() -> None:
    assert parse_hints({}, {"task": "ä" * 128}).task == "ä" * 128


def test_a_task_in_a_header_is_the_same_task_in_metadata() -> None:
    """Clients write UTF-8, servers decode Latin-1."""
    for task in ("café", "任务-7"):
        as_server_sees_it = task.encode().decode("latin-1")
        assert parse_hints({"x-appliance-task": as_server_sees_it}).task == task
    assert parse_hints({"x-appliance-task": "caf\xe9"}).task == "café"  # a client that wrote Latin-1


def test_the_openapi_document_has_every_header() -> None:
    parameters = header_parameters()
    assert [parameter["name"] for parameter in parameters] == [
        "x-appliance-task",
        "x-appliance-step",
        "x-appliance-criticality",
        "x-appliance-cache",
        "x-appliance-privacy",
        "x-appliance-timeout",
    ]
    assert all(parameter["in"] == "header" and not parameter["required"] for parameter in parameters)


@pytest.mark.parametrize("order", [("any", "local-only"), ("local-only", "any")])
def test_of_two_headers_of_privacy_the_stricter_holds(order: tuple[str, str]) -> None:
    headers = Headers(raw=[(b"x-appliance-privacy", value.encode()) for value in order])
    assert parse_hints(headers).privacy == "local-only"


def test_other_headers_may_stand_twice_only_if_they_say_the_same() -> None:
    same = Headers(raw=[(b"x-appliance-step", b"plan"), (b"x-appliance-step", b"plan")])
    assert parse_hints(same).step == "plan"
    with pytest.raises(InvalidRequest) as refused:
        parse_hints(Headers(raw=[(b"x-appliance-step", b"plan"), (b"x-appliance-step", b"chat")]))
    assert refused.value.param == "x-appliance-step"


@pytest.mark.parametrize("name", ["x-appliance-privcy", "X-Appliance-Privacey", "x-appliance-steps"])
def test_a_misspelt_hint_is_refused_with_the_one_that_was_meant(name: str) -> None:
    with pytest.raises(InvalidRequest, match="Did you mean") as refused:
        parse_hints({name: "local-only"})
    assert refused.value.param == name.lower()


def test_headers_that_are_no_hint_at_all_are_left_alone() -> None:
    assert parse_hints({"x-appliance-request-origin": "a", "x-other": "b"}) == parse_hints({})
