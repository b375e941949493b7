"""Server-sent events out of bytes as they come (https://html.spec.whatwg.org/multipage/server-sent-events.html).

Pure. Of an upstream that is not trusted: a line has a bound, and what is no UTF-8 is an error.
"""

from collections.abc import Iterator

from fallback.wire.contract import MalformedAnswer

BOM = b"\xef\xbb\xbf"
MAX_EVENT_BYTES = 8 * 2**20  # an image in base64 may be one event


class EventStream:
    def __init__(self) -> None:
        self._buffer = bytearray()
        self._name = ""
        self._data: list[str] = []
        self._data_bytes = 0
        self._begun = False
        self._after_return = False

    def feed(self, data: bytes) -> Iterator[tuple[str, str]]:
        """(event name or "", data) of each event that is whole now. Raises `MalformedAnswer`."""
        if not data:
            return
        if self._after_return and data.startswith(b"\n"):  # the second half of a line break
            data = data[1:]
        self._after_return = data.endswith(b"\r")
        self._buffer += data
        if not self._begun and len(self._buffer) >= len(BOM):
            self._begun = True
            if self._buffer.startswith(BOM):
                del self._buffer[: len(BOM)]
        if b"\n" in data or b"\r" in data:
            *lines, rest = bytes(self._buffer).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
            self._buffer = bytearray(rest)
            for line in lines:
                yield from self._take(line)
        self._check_size(len(self._buffer))

    def _check_size(self, more_bytes: int) -> None:
        if more_bytes + self._data_bytes > MAX_EVENT_BYTES:
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
                self._data_bytes += len(value) + 1  # an empty line takes its place too
                self._check_size(0)
                self._data.append(value.decode())
        except UnicodeDecodeError:
            raise MalformedAnswer("the stream is not UTF-8") from None
