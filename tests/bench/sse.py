"""What a captured HTTP response says: when each token came, and how many there were.

Pure: a capture holds the bytes as they came off the socket with the time of each read. Parsing waits until a run is
over, so that the client takes next to nothing from the cores that it shares with the server it measures.
"""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httptools

from tests.bench.errors import BadResponseError


@dataclass(frozen=True, slots=True)
class Capture:
    """One request and its response as bytes. The times are readings of one clock, in seconds."""

    sent_s: float  # when the request was written to a connection already open
    pieces: tuple[tuple[float, bytes], ...]  # (when, what) of each read, in order


@dataclass(frozen=True, slots=True)
class Stream:
    """One streamed chat completion. A count is None where the server does not send it."""

    sent_s: float
    content_s: tuple[float, ...]  # arrival of each chunk that carried text; never empty
    finish_reason: str | None
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None

    @property
    def ttft_s(self) -> float:
        """From the written request to the first text."""
        return self.content_s[0] - self.sent_s

    @property
    def gaps_s(self) -> tuple[float, ...]:
        """Inter-token latency: the time from each chunk of text to the next."""
        return tuple(after - before for before, after in itertools.pairwise(self.content_s))

    def generated_tokens(self, asked: int) -> int:
        """Tokens made: the server's usage; where it sends none, `asked` if it ended by "length", which says the same.

        BadResponseError when it says neither.
        """
        if self.completion_tokens is not None:
            return self.completion_tokens
        if self.finish_reason == "length":
            return asked
        raise BadResponseError(f"no usage, and the end was {self.finish_reason!r}: the number of tokens is unknown")


def parse(capture: Capture) -> Stream:
    """Reads the response to a streamed `/v1/chat/completions`.

    BadResponseError on any status but 200, on an error event, and on a stream that ends early or carries no text.
    """
    content_s: list[float] = []
    finish_reason: str | None = None
    usage: dict[str, Any] = {}
    for at_s, event in _events(capture):
        if "error" in event:
            raise BadResponseError(f"the stream broke off with {event['error']}")
        usage = event.get("usage") or usage
        for choice in event.get("choices", ()):
            if choice["delta"].get("content"):
                content_s.append(at_s)
            finish_reason = choice.get("finish_reason") or finish_reason
    if not content_s:
        raise BadResponseError("the stream carried no text")
    return Stream(
        sent_s=capture.sent_s,
        content_s=tuple(content_s),
        finish_reason=finish_reason,
        prompt_tokens=usage.get("prompt_tokens"),
        cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
        completion_tokens=usage.get("completion_tokens"),
    )


class _Body:
    """Gathers the body that httptools finds under HTTP's framing (chunked, by length or by close)."""

    def __init__(self) -> None:
        self.data = bytearray()

    def on_body(self, data: bytes) -> None:
        self.data += data


def _events(capture: Capture) -> Iterator[tuple[float, dict[str, Any]]]:
    """Each event's time of arrival (that of its last byte) and JSON, up to the closing `[DONE]`."""
    body = _Body()
    response = httptools.HttpResponseParser(body)
    for at_s, data in capture.pieces:
        response.feed_data(data)
        *lines, rest = body.data.split(b"\n")
        if response.get_status_code() != 200:
            continue  # an error's body is read whole, below
        body.data = rest
        for line in lines:
            field, _, value = line.rstrip(b"\r").partition(b":")
            if field != b"data":
                continue  # blank lines, and the comments that keep a connection alive
            if value.strip() == b"[DONE]":
                return
            yield at_s, json.loads(value)
    if not capture.pieces:
        raise BadResponseError("the server closed the connection without an answer")
    if response.get_status_code() != 200:
        raise BadResponseError(f"HTTP {response.get_status_code()}: {body.data[:500].decode(errors='replace')}")
    raise BadResponseError("the stream ended before its [DONE]")
