"""Server-sent events out of bytes as they come (https://html.spec.whatwg.org/multipage/server-sent-events.html).

Pure. Of an upstream that is not trusted: a line has a bound, and what is no UTF-8 is an error.
"""

from collections.abc import Iterator

from fallback.wire.contract import MalformedAnswer

MAX_EVENT_BYTES = 8 * 2**20  # an image in base64 may be one event


class EventStream:
    def __init__(self) -> None:
        self._buffer = bytearray()
        self._name = ""
        self._data: list[str] = []
        self._data_bytes = 0

    def feed(self, data: bytes) -> Iterator[tuple[str, str]]:
        """(event name or "", data) of each event that is whole now. Raises `MalformedAnswer`."""
        self._buffer += data
        if b"\n" in data or b"\r" in data:
            # A carriage return at the end may be half a line break.
            whole = len(self._buffer) - self._buffer.endswith(b"\r")
            text = bytes(self._buffer[:whole]).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            *lines, rest = text.split(b"\n")
            self._buffer = bytearray(rest) + self._buffer[whole:]
            for line in lines:
                yield from self._take(line)
        if len(self._buffer) + self._data_bytes > MAX_EVENT_BYTES:
            raise MalformedAnswer(f"one event of the stream is larger than {MAX_EVENT_BYTES} bytes")

    def _take(self, line: bytes) -> Iterator[tuple[str, str]]:
        if not line:
            name, data = self._name, self._data
            self._name, self._data, self._data_bytes = "", [], 0
            if data:
                yield name, "\n".join(data)
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        try:
            if field == b"event":
                self._name = value.decode()
            elif field == b"data":
                self._data.append(value.decode())
                self._data_bytes += len(value)
        except UnicodeDecodeError:
            raise MalformedAnswer("the stream is not UTF-8") from None
