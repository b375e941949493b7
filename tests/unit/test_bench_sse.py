"""How the benchmark reads a captured response: times, counts, and refusals."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.errors import BadResponseError
from tests.bench.sse import Capture, Stream, parse

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_END = b"0\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _event(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


_ROLE = _event({"role": "assistant", "content": None})
_LAST = _event({}, "length")
_USAGE = (
    b'data: {"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 3,'
    b' "prompt_tokens_details": {"cached_tokens": 25}}}\n\n'
)
_DONE = b"data: [DONE]\n\n"


def test_a_token_has_the_time_of_the_read_that_completed_it() -> None:
    stream = parse(
        Capture(
            10.0,
            (
                (10.5, _HEAD + _chunk(_ROLE)),
                (11.0, _chunk(_event({"content": "one"}))),
                (11.25, _chunk(_event({"content": " two"})) + _chunk(_event({"content": " three"}))),
                (12.0, _chunk(_LAST + _USAGE + _DONE) + _END),
            ),
        )
    )
    assert stream == Stream(10.0, (11.0, 11.25, 11.25), "length", 40, 25, 3)
    assert stream.ttft_s == 1.0
    assert stream.gaps_s == (0.25, 0.0)


@given(st.data())
def test_it_does_not_matter_where_reads_are_cut(data: st.DataObject) -> None:
    tokens = [_event({"content": text}) for text in ("a", "é", "\n\ndata: x")]
    whole = _HEAD + b"".join(map(_chunk, [_ROLE, *tokens, _LAST, _USAGE, _DONE])) + _END
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=8)))
    bounds = [0, *cuts, len(whole)]
    pieces = tuple((float(i), whole[a:b]) for i, (a, b) in enumerate(itertools.pairwise(bounds)))
    stream = parse(Capture(0.0, pieces))
    assert (len(stream.content_s), stream.completion_tokens) == (3, 3)


def test_comments_blank_lines_and_carriage_returns_are_passed_over() -> None:
    body = b": ping\r\n\r\n" + _event({"content": "x"}).replace(b"\n", b"\r\n") + _LAST + _DONE
    stream = parse(Capture(0.0, ((1.0, _HEAD + _chunk(body) + _END),)))
    assert stream == Stream(0.0, (1.0,), "length", None, None, None)


def test_a_server_without_usage_made_what_was_asked_if_it_ended_by_length() -> None:
    assert Stream(0.0, (1.0,), "length", None, None, None).generated_tokens(64) == 64
    assert Stream(0.0, (1.0,), "length", None, None, 63).generated_tokens(64) == 63
    with pytest.raises(BadResponseError, match="unknown"):
        Stream(0.0, (1.0,), "stop", None, None, None).generated_tokens(64)


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ((), "without an answer"),
        ((b"HTTP/1.1 503 Busy\r\nContent-Length: 9\r\n\r\n", b"try later"), "HTTP 503: try later"),
        ((_HEAD + _chunk(_event({"content": "x"})),), "before its"),
        ((_HEAD + _chunk(_LAST + _DONE) + _END,), "no text"),
        ((_HEAD + _chunk(b'data: {"error": {"code": "engine_crashed"}}\n\n'),), "engine_crashed"),
    ],
)
def test_anything_but_a_whole_stream_is_refused(pieces: tuple[bytes, ...], message: str) -> None:
    with pytest.raises(BadResponseError, match=message):
        parse(Capture(0.0, tuple((1.0, piece) for piece in pieces)))
