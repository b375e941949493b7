"""Formats of JSON Schema: what an answer is held to is inside them, by the word of a validator."""

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtimes.constraints.formats import narrow_formats

FORMATS = ("date", "time", "date-time", "hostname", "email")


def narrowed(name: str) -> str:
    schema = {"type": "string", "format": name}
    narrow_formats(schema)
    assert schema.keys() == {"type", "pattern"}
    return schema["pattern"]


@pytest.mark.parametrize("name", FORMATS)
def test_whatever_matches_the_pattern_has_the_format(name: str) -> None:
    validator = jsonschema_rs.Draft202012Validator({"type": "string", "format": name}, validate_formats=True)

    @settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.from_regex(narrowed(name).removesuffix("$"), fullmatch=True))
    def holds(text: str) -> None:
        assert validator.is_valid(text), text

    holds()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("date", "2024-02-29"),
        ("date", "2000-02-29"),
        ("date", "2023-12-31"),
        ("time", "23:59:59Z"),
        ("time", "00:00:00.123+05:30"),
        ("date-time", "2024-02-29T23:59:59-11:00"),
        ("hostname", "db-1.internal.example"),
        ("email", "ann.lee+news@mail.example.org"),
    ],
)
def test_what_people_write_still_matches(name: str, text: str) -> None:
    validator = jsonschema_rs.Draft202012Validator({"type": "string", "pattern": narrowed(name)})
    assert validator.is_valid(text)


def test_formats_are_narrowed_wherever_they_stand() -> None:
    date = {"type": "string", "format": "date"}
    schema: dict[str, Any] = {
        "$defs": {"day": dict(date)},
        "properties": {"a": {"items": dict(date)}, "b": {"anyOf": [dict(date), {"type": "null"}]}},
        "patternProperties": {"^x": dict(date)},
    }
    narrow_formats(schema)
    assert "format" not in str(schema)


def test_what_only_looks_like_a_format_stays() -> None:
    kept: list[Any] = [
        {"enum": [{"format": "date"}]},
        {"const": {"format": "email"}},
        {"type": "object", "properties": {"format": {"type": "string"}}},
        {"format": "uuid"},
        {"format": "date", "pattern": "^2024"},
        {"format": 5},
        True,
    ]
    for schema in kept:
        before = str(schema)
        narrow_formats(schema)
        assert str(schema) == before
