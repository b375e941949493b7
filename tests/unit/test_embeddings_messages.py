"""What daemon and embedding worker say to each other survives the socket, and nothing else gets through."""

import msgpack
import pytest

from runtimes.embeddings.messages import Embed, Embedded, Load, LoadFailed, Ready, decode, encode
from runtimes.sandbox.frames import HEADER


@pytest.mark.parametrize(
    "message",
    [
        Load("/models/model.onnx", "/models/tokenizer.json", 2),
        Ready(384, 256, "CPUExecutionProvider", 0.5, ("no Landlock",)),
        LoadFailed("it is damaged", final=True),
        Embed(("", "höflich 🙂\0")),
        Embedded(bytes(range(8)), (2, 300)),
    ],
)
def test_a_message_arrives_as_it_was_sent(message: object) -> None:
    frame = encode(message)
    assert HEADER.unpack(frame[: HEADER.size])[0] == len(frame) - HEADER.size
    assert decode(frame[HEADER.size :]) == message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x93\x01",
        msgpack.packb([]),
        msgpack.packb(7),
        msgpack.packb(["NoSuchMessage", 1]),
        msgpack.packb([["Embed"], 1]),
        msgpack.packb(["Embed"]),
        msgpack.packb(["Embed", [], 1]),
        b"\x91" * 2000,
    ],
)
def test_bytes_that_are_no_message_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        decode(body)
