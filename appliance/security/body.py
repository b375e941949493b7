"""A request's JSON body, read within limits. Whatever the bytes are, the outcome is an object or an `ApplianceError`.

Decisions: an encoded body (gzip) is a plain 400, since undoing it would void the size cap, and 415 is not in our
contract. Of duplicate keys the last wins, as in every JSON parser a client was written against; nothing here looks at
a body before the parser does, so no two readers can disagree. NUL characters are text like any other.

The parser is pydantic's (jiter). It refuses malformed UTF-8, lone surrogates, NaN and trailing text by itself; it lets
1e999 through as infinity and integers of any length, and it stops at 200 levels: the rest is done here. A body of size
is handled in a thread; the interpreter is shared, so the event loop still stalls for the parsing alone. Measured on one
slow core: 10 MB of prose takes 50 ms in all and stalls the loop for 20; the worst shape within the limits for 50.
"""

import asyncio
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json
from starlette.types import Receive

from appliance.errors import ApplianceError, BodyTooLarge, InvalidRequest, RequestTimeout
from appliance.security.headers import Headers, values
from appliance.security.json_shape import measure

THREAD_ABOVE_BYTES = 128 * 1024  # about 1 ms of work; a thread costs 0.1 ms

_JSON_TYPE = re.compile(r"application/(?:[a-z0-9.+-]+\+)?json", re.IGNORECASE)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class BodyLimits:
    max_bytes: int
    max_depth: int = 64  # deep for a JSON schema, and far from Python's recursion limit in all that walks it later
    max_marks: int = 500_000  # brackets, commas and colons: half a million token ids; 50 ms of parsing at worst


async def read_json(receive: Receive, headers: Headers, limits: BodyLimits) -> dict[str, Any]:
    """The body as an object. Raises an `ApplianceError` that says what is wrong, and where."""
    _check_headers(headers)
    body = await _read(receive, headers, limits.max_bytes)
    if len(body) > THREAD_ABOVE_BYTES:
        return await asyncio.to_thread(parse_object, body, limits)
    return parse_object(body, limits)


def parse_object(body: bytes | bytearray, limits: BodyLimits) -> dict[str, Any]:
    """The JSON object in `body`. Raises `InvalidRequest`."""
    if not body.strip(b" \t\r\n"):
        raise InvalidRequest("The request body is empty: send a JSON object.")
    great_numbers = False
    for shape in measure(body):
        if shape.depth > limits.max_depth:
            raise InvalidRequest(f"The body's arrays and objects are nested deeper than {limits.max_depth} levels.")
        if shape.marks > limits.max_marks:
            raise InvalidRequest(f"The body has more than {limits.max_marks} values and keys: send less at a time.")
        great_numbers = shape.great_numbers
    try:
        parsed = from_json(body, allow_inf_nan=False, cache_strings=False)
    except ValueError as error:
        raise _explain(body, str(error)) from None
    if not isinstance(parsed, dict):
        raise InvalidRequest(f"The body must be a JSON object, not {_json_type(parsed)}.")
    if great_numbers:
        _check_numbers(parsed)
    return parsed


def _check_headers(headers: Headers) -> None:
    for encoding in values(headers, b"content-encoding"):
        if encoding.lower() not in ("", "identity"):
            raise InvalidRequest(
                f"Content-Encoding {encoding[:50]!r} is not supported: send the body as it is.",
                param="content-encoding",
            )
    for content_type in values(headers, b"content-type"):
        media_type, *parameters = (part.strip() for part in content_type.split(";"))
        if media_type and not _JSON_TYPE.fullmatch(media_type):
            raise InvalidRequest(
                f"Content-Type {media_type[:50]!r} is not JSON: send 'Content-Type: application/json'.",
                param="content-type",
            )
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "charset" and value.strip().strip('"').lower() not in (
                "utf-8",
                "utf8",
                "us-ascii",
            ):
                raise InvalidRequest(
                    f"JSON is UTF-8; the charset {value[:30]!r} is not supported.", param="content-type"
                )


async def _read(receive: Receive, headers: Headers, max_bytes: int) -> bytearray:
    announced = values(headers, b"content-length")
    if any(text.isdecimal() and (len(text) > 18 or int(text) > max_bytes) for text in announced):
        raise _too_large(max_bytes)
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise RequestTimeout("The connection ended before the body was whole.")  # nobody is left to read it
        body += message.get("body", b"")
        if len(body) > max_bytes:
            raise _too_large(max_bytes)
        if not message.get("more_body", False):
            return body


def _too_large(max_bytes: int) -> ApplianceError:
    return BodyTooLarge(f"The body is larger than {max_bytes} bytes (server.max_body_bytes).")


def _explain(body: bytes | bytearray, reason: str) -> ApplianceError:
    """What is wrong with text the parser refused; for a lone surrogate also where, which the parser does not say."""
    if body.startswith(b"\xef\xbb\xbf"):
        return InvalidRequest("The body starts with a byte order mark: send UTF-8 without one.")
    if "hex escape" in reason:
        try:
            lenient = json.loads(body.decode("utf-8"))
        except (ValueError, RecursionError):
            lenient = None
        for path, value in _leaves(lenient):
            if isinstance(value, str) and not _is_text(value):
                return InvalidRequest(
                    f"{path}: the text holds half of a surrogate pair (such as \\ud83d alone), which is no character.",
                    param=path,
                )
    return InvalidRequest(f"The body is not valid JSON: {reason}.")


def _check_numbers(parsed: dict[str, Any]) -> None:
    for path, value in _leaves(parsed):
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise InvalidRequest(f"{path}: the integer does not fit in 64 bits.", param=path)
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidRequest(f"{path}: the number is too large.", param=path)


def _leaves(parsed: object) -> Iterator[tuple[str, object]]:
    """Every value that is not an array or object, and every key, with its path, as `messages[0].content`."""
    pending: list[tuple[str, object]] = [("", parsed)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, dict):
            for key, inner in value.items():
                name = key if _IDENTIFIER.fullmatch(key) else ascii(key[:64])
                below = f"{path}.{name}" if path else name
                if name != key:
                    yield below, key
                pending.append((below, inner))
        elif isinstance(value, list):
            pending.extend((f"{path}[{index}]", inner) for index, inner in enumerate(value))
        else:
            yield path, value


def _is_text(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    names: dict[type, str] = {list: "an array", str: "a string", bool: "a boolean"}
    return names.get(type(value), "a number")
