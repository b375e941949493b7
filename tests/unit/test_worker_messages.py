"""What daemon and worker say to each other survives the socket, and nothing else gets through."""

import struct

import msgpack
import pytest

from appliance.protocol import (
    ChatPrompt,
    Delta,
    Finished,
    Message,
    Sampling,
    Started,
    Stopping,
    TextPart,
    TokenLogprob,
    TokenPrompt,
    ToolCall,
)
from runtimes.engine import EngineStats
from runtimes.worker.messages import LENGTH, MAX_FRAME_BYTES, Cancel, Generate, Refused, Stepped, decode, encode

STATS = EngineStats(16, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0.5, 1.0)
CHAT = ChatPrompt(
    (
        Message("system", (TextPart("Sei höflich 🙂"),)),
        Message("assistant", tool_calls=(ToolCall("call_1", "look", '{"a":1}'),)),
        Message("tool", (TextPart("\0"),), tool_call_id="call_1"),
    ),
    {"enable_thinking": False, "list": (1, 2.5, None)},
)
SAMPLING = Sampling(logit_bias=((3, -1.5),), seed=2**64 - 1)
LOGPROB = TokenLogprob(5, b"\xf0\x9f", -0.5, (TokenLogprob(6, b"x", -1.0),))


@pytest.mark.parametrize(
    "message",
    [
        Generate("1", (CHAT, TokenPrompt((1, 2))), 2, SAMPLING, Stopping(stop=("\n",))),
        Cancel("7"),
        Refused("7", "context_length_exceeded", "too long", "messages"),
        Stepped((("1", Started(0, 10, 4, 0.25)), ("1", Delta(0, "hé", 2, (LOGPROB,)))), STATS),
        Stepped((("2", Finished(1, "stop", 3)),), STATS),
    ],
)
def test_a_message_arrives_as_it_was_sent(message: object) -> None:
    frame = encode(message)
    assert LENGTH.unpack(frame[: LENGTH.size])[0] == len(frame) - LENGTH.size
    assert decode(frame[LENGTH.size :]) == message


def test_what_is_no_message_of_ours_cannot_be_sent() -> None:
    with pytest.raises(TypeError, match="object cannot cross"):
        encode(object())


def test_a_message_longer_than_a_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="are the limit"):
        encode(Cancel("x" * MAX_FRAME_BYTES))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x93\x01",
        msgpack.packb(msgpack.ExtType(1, msgpack.packb(["NoSuchMessage", 1]))),
        msgpack.packb(msgpack.ExtType(1, msgpack.packb(["Cancel"]))),
        msgpack.packb(msgpack.ExtType(2, b"")),
        struct.pack("B", 0x91) * 2000,
    ],
)
def test_bytes_that_are_no_message_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        decode(body)
