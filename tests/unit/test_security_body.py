"""Reading a JSON body: hostile, broken, large and fine ones."""

import asyncio
import json
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.types import Message

from appliance.errors import ApplianceError, BodyTooLarge, InvalidRequest, RequestTimeout
from appliance.security import json_shape
from appliance.security.body import THREAD_ABOVE_BYTES, BodyLimits, parse_object, read_json
from appliance.security.json_shape import Shape, measure

LIMITS = BodyLimits(max_bytes=10 * 1024 * 1024)


class Client:
    """Sends the pieces of a body; `asked` counts how often it was listened to."""

    def __init__(self, pieces: Iterable[bytes], *, leaves: bool = False) -> None:
        self._pieces = list(pieces)
        self._leaves = leaves
        self.asked = 0

    async def receive(self) -> Message:
        self.asked += 1
        if not self._pieces and self._leaves:
            return {"type": "http.disconnect"}
        piece = self._pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(self._pieces) or self._leaves}


async def _read(
    body: bytes, headers: Sequence[tuple[bytes, bytes]] = (), limits: BodyLimits = LIMITS
) -> dict[str, object]:
    return await read_json(Client([body]).receive, headers, limits)


def _refusal(body: bytes, limits: BodyLimits = LIMITS) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parse_object(body, limits)
    json.dumps(caught.value.body()).encode()  # whatever it quotes must be fit to send
    return caught.value


async def test_an_object_that_comes_in_pieces_is_read() -> None:
    client = Client([b'{"mod', b"", b'el":"auto",', b'"n":1}'])
    assert await read_json(client.receive, [], LIMITS) == {"model": "auto", "n": 1}


async def test_a_large_body_is_read_while_the_event_loop_goes_on() -> None:
    body = json.dumps({"text": "lorem ipsum, " * 700_000}).encode()
    assert len(body) > 70 * THREAD_ABOVE_BYTES / 2
    reading = asyncio.create_task(_read(body))
    turns = 0
    while not reading.done():
        turns += 1
        await asyncio.sleep(0)
    assert set(await reading) == {"text"}
    assert turns > 10  # read in the loop's own thread it would be two or three


async def test_an_announced_length_above_the_limit_is_refused_before_a_byte_is_read() -> None:
    client = Client([b"{}"])
    for length in (b"101", b"9" * 400):
        with pytest.raises(BodyTooLarge, match="max_body_bytes"):
            await read_json(client.receive, [(b"content-length", length)], BodyLimits(max_bytes=100))
    assert client.asked == 0


async def test_an_unannounced_body_is_counted_while_it_comes() -> None:
    client = Client([b" " * 60] * 100)
    with pytest.raises(BodyTooLarge):
        await read_json(client.receive, [], BodyLimits(max_bytes=100))
    assert client.asked == 2


async def test_a_body_of_exactly_the_limit_is_read() -> None:
    assert await _read(b'{"a": 1}', [(b"content-length", b"8")], BodyLimits(max_bytes=8)) == {"a": 1}


async def test_a_client_that_leaves_early_is_no_crash() -> None:
    with pytest.raises(RequestTimeout):
        await read_json(Client([b'{"a":'], leaves=True).receive, [], LIMITS)


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "application/json",
        "Application/JSON; charset=UTF-8",
        'application/json;charset="utf-8"',
        "application/x+json",
    ],
)
async def test_json_or_nothing_is_a_good_content_type(content_type: str) -> None:
    assert await _read(b"{}", [(b"content-type", content_type.encode())]) == {}
    assert await _read(b"{}") == {}


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "json",
        "application/jsonx",
        "application/json; charset=utf-16",
        "application/json; charset=latin-1",
    ],
)
async def test_any_other_content_type_is_refused_before_the_body_is_read(content_type: str) -> None:
    client = Client([b"{}"])
    with pytest.raises(InvalidRequest) as caught:
        await read_json(client.receive, [(b"content-type", content_type.encode())], LIMITS)
    assert caught.value.param == "content-type"
    assert client.asked == 0


async def test_an_encoded_body_is_refused_and_an_identity_one_is_not() -> None:
    assert await _read(b"{}", [(b"content-encoding", b"identity")]) == {}
    for encoding in (b"gzip", b"br", b"gzip, identity", b"\xff"):
        with pytest.raises(InvalidRequest) as caught:
            await _read(b"{}", [(b"content-encoding", encoding)])
        assert caught.value.param == "content-encoding"


@pytest.mark.parametrize("body", [b"", b"  \r\n\t", b"[]", b"null", b'"x"', b"1", b"true", b"[{}]"])
def test_anything_but_an_object_is_refused_by_name(body: bytes) -> None:
    assert "object" in _refusal(body).message


@pytest.mark.parametrize(
    "body",
    [
        *(
            b"{",
            b"{}x",
            b"{} {}",
            b"{}\x00",
            b"{'a':1}",
            b'{"a":1,}',
            b'{"a":01}',
            b'{"a":.5}',
            b'{"a":+1}',
            b"//x\n{}",
        ),
        *(b'{"a":"\n"}', b'{"a":NaN}', b'{"a":Infinity}', b'{"a":-Infinity}', b"\x1f\x8b\x08", b"\xef\xbb\xbf{}"),
        *(b'{"a":"\xff"}', b'{"\xff":1}', b'{"a":"\xed\xa0\x80"}', b'{"a":"\xc0\xaf"}', '{"a":1}'.encode("utf-16")),
    ],
)
def test_what_is_not_json_in_utf8_is_refused(body: bytes) -> None:
    assert _refusal(body).status == 400


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"messages":[{"role":"user","content":"\\ud800"}]}', "messages[0].content"),
        (b'{"a":{"b":["x",["\\udc00 tail"]]}}', "a.b[1][0]"),
        (b'{"a":"\\ud800\\ud800\\udc00"}', "a"),
        (b'{"a":{"\\udfff":1}}', "a.'\\udfff'"),
        (b'{"odd key":"\\uD83D"}', "'odd key'"),
    ],
)
def test_half_a_surrogate_pair_is_refused_and_its_place_named(body: bytes, path: str) -> None:
    error = _refusal(body)
    assert error.param == path
    assert path in error.message


def test_whole_pairs_nul_and_escaped_quotes_are_text() -> None:
    body = b'{"a":"\\ud83d\\ude00","b":"x\\u0000y","c":"\\\\\\"[{"}'
    assert parse_object(body, LIMITS) == {"a": "\N{GRINNING FACE}", "b": "x\0y", "c": '\\"[{'}


def test_of_duplicate_keys_the_last_wins() -> None:
    assert parse_object(b'{"a":1,"a":2,"\\u0061":3}', LIMITS) == {"a": 3}


@pytest.mark.parametrize(
    "number", ["1e999", "-1e999", "9" * 400 + ".5", "18446744073709551616", "-9223372036854775809"]
)
def test_a_number_too_great_is_refused_and_its_place_named(number: str) -> None:
    error = _refusal(b'{"x":[0,{"max_tokens":%s}]}' % number.encode())
    assert error.param == "x[1].max_tokens"


@pytest.mark.parametrize("digits", [4301, 1_000_000])
def test_an_integer_of_a_million_digits_is_refused(digits: int) -> None:
    assert _refusal(b'{"a":' + b"9" * digits + b"}").status == 400


@pytest.mark.parametrize("number", ["18446744073709551615", "-9223372036854775808", "1e308", "0." + "1" * 60, "1e-999"])
def test_the_greatest_numbers_that_fit_are_read(number: str) -> None:
    assert parse_object(b'{"a":%s}' % number.encode(), LIMITS) == {"a": json.loads(number)}


def test_nesting_is_allowed_to_the_limit_and_no_deeper() -> None:
    def nested(depth: int) -> bytes:
        return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"

    parse_object(nested(LIMITS.max_depth), LIMITS)
    for depth in (LIMITS.max_depth + 1, 1000, 1_000_000):
        assert "deep" in _refusal(nested(depth)).message
    assert "deep" in _refusal(b'{"a":' * 1_000_000).message


def test_brackets_in_text_are_not_nesting() -> None:
    assert parse_object(json.dumps({"a": '[{"\\' * 5000}).encode(), LIMITS) == {"a": '[{"\\' * 5000}


def test_ten_megabytes_of_tiny_values_are_refused_unparsed() -> None:
    limits = BodyLimits(max_bytes=1, max_marks=1000)
    assert "1000 values" in _refusal(b'{"a":[' + b"[]," * 3_000_000 + b"0]}", limits).message
    parse_object(b'{"a":[' + b"1," * 900 + b"0]}", limits)


@given(st.binary(max_size=300))
@example(b'{"a":"\\ud800"')
@example(b'{"a":"\\ud8')
@example(b'{"a":1e')
def test_any_bytes_are_an_object_or_our_error(body: bytes) -> None:
    try:
        assert isinstance(parse_object(body, LIMITS), dict)
    except InvalidRequest as error:
        json.dumps(error.body()).encode()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    # All of Unicode and, more often, what matters to the scan.
    | st.text()
    | st.text(alphabet='"\\[]{},:x0123456789eE+'),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)


@given(st.dictionaries(st.text(), JSON, max_size=5), st.booleans())
def test_every_object_is_read_as_the_standard_library_reads_it(value: dict[str, object], ascii_only: bool) -> None:  # noqa: FBT001 - drawn
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert parse_object(body, LIMITS) == json.loads(body)


@given(st.dictionaries(st.text(), JSON, max_size=5), st.data())
def test_a_cut_or_flipped_body_is_never_more_than_a_bad_request(value: dict[str, object], data: st.DataObject) -> None:
    body = bytearray(json.dumps(value).encode())
    position = data.draw(st.integers(0, len(body) - 1))
    if data.draw(st.booleans()):
        del body[position:]
    else:
        body[position] = data.draw(st.integers(0, 255))
    try:
        parse_object(body, LIMITS)
    except ApplianceError as error:
        assert error.status == 400  # noqa: PT017 - a flipped letter may leave good JSON


def _depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max((_depth(inner) for inner in value.values()), default=0)
    if isinstance(value, list):
        return 1 + max((_depth(inner) for inner in value), default=0)
    return 0


def _marks(value: object) -> int:
    if isinstance(value, dict):
        return 1 + len(value) + max(0, len(value) - 1) + sum(map(_marks, value.values()))
    if isinstance(value, list):
        return 1 + max(0, len(value) - 1) + sum(map(_marks, value))
    return 0


@given(JSON, st.integers(2, 40))
def test_the_shape_is_right_however_the_text_is_cut_into_pieces(value: object, piece_bytes: int) -> None:
    text = json.dumps(value).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_shape, "PIECE_BYTES", piece_bytes)
        *_, shape = measure(text)
    *_, whole = measure(text)
    assert shape == whole
    assert (shape.depth, shape.marks) == (_depth(value), _marks(value))


@pytest.mark.parametrize("cut", range(2, 30))
def test_a_great_number_is_seen_across_the_edge_of_a_piece(cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_shape, "PIECE_BYTES", cut)
    *_, shape = measure(b'["1", 1111111111111111111]')
    assert shape == Shape(depth=1, marks=2, great_numbers=True)
    *_, shape = measure(b'["1111111111", 1111111111111]')
    assert not shape.great_numbers


def test_ten_megabytes_of_backslashes_take_no_longer_than_others() -> None:
    sizes = [len(piece) for piece in json_shape._pieces(b"\\" * 10_000_001)]
    assert max(sizes) <= json_shape.PIECE_BYTES
    assert sum(sizes) == 10_000_001
