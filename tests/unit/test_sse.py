"""Framing of server-sent events."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.api import sse
from appliance.errors import EngineCrashed

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
)


@given(JSON)
def test_an_event_is_one_data_line_however_a_client_splits_lines(value: object) -> None:
    frame = sse.event(value)
    assert frame.endswith(b"\n\n")
    (line,) = frame[:-2].decode().splitlines()
    assert json.loads(line.removeprefix("data: ")) == value


@pytest.mark.parametrize("text", ["\n", "\r", "\x85", "\u2028", "\u2029", "\x0b", "\x1c", "a\u2028b 你好"])
def test_every_kind_of_line_break_is_escaped(text: str) -> None:
    encoded = sse.json_bytes(text).decode()
    assert len(encoded.splitlines()) == 1
    assert json.loads(encoded) == text


def test_other_text_stays_readable() -> None:
    assert sse.json_bytes({"a": "né 你好 🦙"}) == '{"a":"né 你好 🦙"}'.encode()


def test_a_number_that_json_cannot_write_is_a_bug_and_not_a_broken_stream() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        sse.event({"x": float("nan")})


def test_an_error_is_one_event_in_openais_shape() -> None:
    frame = sse.error(EngineCrashed("The model's process ended.", param=None))
    assert json.loads(frame.removeprefix(b"data: ")) == {
        "error": {
            "message": "The model's process ended.",
            "type": "server_error",
            "param": None,
            "code": "engine_crashed",
        }
    }


def test_the_fixed_frames() -> None:
    assert sse.DONE == b"data: [DONE]\n\n"


def test_a_comment_is_nothing_to_a_client() -> None:
    assert sse.comment("waiting ahead=3") == b": waiting ahead=3\n\n"
