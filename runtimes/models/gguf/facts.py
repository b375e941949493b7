"""Typed access to a header's entries.

A value of another type than llama.cpp expects is an InvalidGGUF that names the key, what is wrong and the byte.
"""

from collections.abc import Iterable
from itertools import islice

from runtimes.models.errors import InvalidGGUF
from runtimes.models.gguf.cursor import Cursor
from runtimes.models.gguf.encoding import ValueType
from runtimes.models.gguf.header import GGUFHeader, Tensor, Unread, elements


class Facts:
    """What a file says about itself. Arrays are read when they are asked for, as long as the cursor is open."""

    def __init__(self, header: GGUFHeader, cursor: Cursor) -> None:
        self._entries = header.entries
        self._cursor = cursor
        self._tensors = {tensor.name: tensor for tensor in header.tensors}
        self.header = header
        self.architecture = self._required_text("general.architecture")

    def wrong(self, key: str, problem: str) -> InvalidGGUF:
        entry = self._entries.get(key)
        return InvalidGGUF(f"{key} {problem}", offset=entry.offset if entry else None)

    def tensor(self, name: str) -> Tensor | None:
        return self._tensors.get(name)

    def integer(self, key: str, kind: ValueType = ValueType.UINT32) -> int | None:
        """llama.cpp takes each integer in one width only, nearly all of them as 32-bit unsigned."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.kind is not kind or not isinstance(entry.value, int):
            raise self.wrong(key, f"must be a {kind.name}, it is a {entry.kind.name}")
        return entry.value

    def positive(self, key: str) -> int:
        value = self.integer(key)
        if value is None:
            raise self.wrong(key, "is missing")
        if value == 0:
            raise self.wrong(key, "is 0")
        return value

    def text(self, key: str) -> str | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.kind is not ValueType.STRING:
            raise self.wrong(key, f"must be a STRING, it is a {entry.kind.name}")
        if not isinstance(entry.value, str):
            raise self.wrong(key, "is too long to be one")
        return entry.value

    def flag(self, key: str) -> bool | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.kind is not ValueType.BOOL:
            raise self.wrong(key, f"must be a BOOL, it is a {entry.kind.name}")
        return bool(entry.value)

    def array(self, key: str, *kinds: ValueType) -> Unread | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        value = entry.value
        if entry.kind is not ValueType.ARRAY or not isinstance(value, Unread) or value.element not in kinds:
            raise self.wrong(key, f"must be an array of {' or '.join(kind.name for kind in kinds)}")
        return value

    def strings(self, array: Unread, key: str) -> Iterable[bytes]:
        self._cursor.seek(array.offset)
        return self._cursor.strings(array.count, key)

    def per_layer(self, key: str, layers: int) -> tuple[int, ...] | None:
        """A value for each layer; a single number stands for all of them."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.kind is not ValueType.ARRAY:
            value = self.integer(key)
            return None if value is None else (value,) * layers
        array = self.array(key, ValueType.UINT32, ValueType.INT32)
        if array is None or array.count != layers:
            raise self.wrong(key, f"must have {layers} elements, one for each layer")
        values = tuple(int(value) for value in islice(elements(self._cursor, array, key), layers))
        if min(values) < 0:
            raise self.wrong(key, "has a negative element")
        return values

    def _required_text(self, key: str) -> str:
        value = self.text(key)
        if not value:
            raise self.wrong(key, "is missing")
        return value
