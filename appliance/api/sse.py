"""Framing of server-sent events, as bytes.

Knows no wire format beyond OpenAI's closing `[DONE]`. JSON is one line of UTF-8 without spaces.
"""

import json
from typing import Final

from appliance.errors import ApplianceError

DONE: Final = b"data: [DONE]\n\n"

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
# Line breaks to many clients' splitters (str.splitlines), though not to the event-stream format or to JSON.
_LINE_BREAKS: Final = str.maketrans({"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def json_bytes(value: object) -> bytes:
    """Compact UTF-8 JSON that no line splitter breaks."""
    text = _encode(value)
    # In JSON text these characters can stand only inside a string, where the escape means the same.
    return (text if text.isascii() else text.translate(_LINE_BREAKS)).encode()


def event(value: object, name: str | None = None) -> bytes:
    """One event whose data is `value` as JSON."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + json_bytes(value) + b"\n\n"


def comment(text: str) -> bytes:
    """One line of text that clients skip, and proxies see as traffic."""
    return b": " + text.encode() + b"\n\n"


def error(failure: ApplianceError) -> bytes:
    """The one event that says why a stream which has begun ends early. Nothing follows it."""
    return event(failure.body())
