"""Bounded reads over a file that may lie about every length in it.

Nothing is read or allocated before it is known to lie within the file. Reads, not a memory map: a file that
another process truncates would otherwise end this process with SIGBUS. Knows how values are encoded, not what they
mean.
"""

import struct
from collections.abc import Iterator
from typing import BinaryIO, Final

from runtimes.models.errors import InvalidGGUF
from runtimes.models.gguf.encoding import SCALAR_FORMAT, ValueType

Scalar = int | float | bool | str

MAX_ELEMENT_BYTES: Final = 1 << 20  # of one string in an array; the longest real tokens have under 1 kB

_U64 = struct.Struct("<Q")


class Cursor:
    """A position in a file of known size. Every method raises InvalidGGUF rather than read past the end."""

    def __init__(self, file: BinaryIO, file_bytes: int) -> None:
        self._file = file
        self.file_bytes = file_bytes
        self.position = 0

    @property
    def remaining(self) -> int:
        return self.file_bytes - self.position

    def seek(self, position: int) -> None:
        self._file.seek(position)
        self.position = position

    def take(self, count: int, what: str) -> bytes:
        self._within(count, what)
        data = self._file.read(count)
        if len(data) != count:  # the file shrank since it was measured
            raise InvalidGGUF(f"the file ends inside {what}", offset=self.position)
        self.position += count
        return data

    def skip(self, count: int, what: str) -> None:
        self._within(count, what)
        self.seek(self.position + count)

    def u32(self, what: str) -> int:
        return int.from_bytes(self.take(4, what), "little")

    def u64(self, what: str) -> int:
        return int.from_bytes(self.take(8, what), "little")

    def scalar(self, kind: ValueType, what: str) -> int | float | bool:
        layout = SCALAR_FORMAT[kind]
        value: int | float | bool = struct.unpack(layout, self.take(struct.calcsize(layout), what))[0]
        return value

    def string(self, what: str, *, max_bytes: int) -> bytes:
        start = self.position
        length = self.u64(f"the length of {what}")
        if length > max_bytes:
            raise InvalidGGUF(f"{what} claims {length:,} bytes; at most {max_bytes:,} make sense", offset=start)
        return self.take(length, what)

    def strings(self, count: int, what: str) -> Iterator[bytes]:
        """The next `count` strings, a chunk of the file in memory at a time."""
        chunk, at = b"", 0
        length_at = _U64.unpack_from  # in a local: vocabularies have 100,000 tokens and as many merges
        for index in range(count):
            body = at + 8
            if body > len(chunk) or body + length_at(chunk, at)[0] > len(chunk):
                self.seek(self.position + at)
                chunk = self._chunk(f"{what}[{index}]")
                at, body = 0, 8
            end = body + length_at(chunk, at)[0]
            yield chunk[body:end]
            at = end
        self.seek(self.position + at)

    def _chunk(self, what: str) -> bytes:
        """What follows in the file: at least the whole of the string that starts here."""
        self._within(8, what)
        chunk = self._file.read(8 + MAX_ELEMENT_BYTES)
        length = int.from_bytes(chunk[:8], "little")
        if length > MAX_ELEMENT_BYTES:
            raise InvalidGGUF(f"{what} claims {length:,} bytes", offset=self.position)
        self._within(8 + length, what)
        if 8 + length > len(chunk):  # the file shrank since it was measured
            raise InvalidGGUF(f"the file ends inside {what}", offset=self.position)
        return chunk

    def _within(self, count: int, what: str) -> None:
        if count > self.remaining:
            raise InvalidGGUF(
                f"{what} needs {count:,} bytes and the file ends after {self.remaining:,}", offset=self.position
            )
