"""GGUF's header: what a file says it contains, read without believing it.

Structure only: magic, version, counts, values, tensors and where they lie. Whether llama.cpp can run what is
described is in `checks` and `tokenizer`. The limits below are several times what real models use; they bound time
and memory, so that a hostile count fails at once. Arrays are measured and left in the file.
"""

import math
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from runtimes.models.errors import InvalidGGUF
from runtimes.models.gguf.cursor import Cursor, Scalar
from runtimes.models.gguf.encoding import (
    DEFAULT_ALIGNMENT,
    MAX_DIMENSIONS,
    MAX_NAME_BYTES,
    SCALAR_FORMAT,
    TENSOR_TYPES,
    ValueType,
)

MAX_KEYS: Final = 16_384  # models have 20 to 80
MAX_KEY_BYTES: Final = 1_024
MAX_TENSORS: Final = 65_536  # the largest mixtures of experts have a few thousand
MAX_KEPT_STRING_BYTES: Final = 1 << 20  # chat templates take up to 20 kB, licence texts up to 100 kB
MAX_KEPT_BYTES: Final = 16 << 20  # of all strings kept in memory together
MAX_STRINGS: Final = 1 << 20  # of one array: the largest vocabularies have 262,144 tokens and 515,000 merges
MAX_ALL_STRINGS: Final = 2 << 20
MAX_ALIGNMENT: Final = 1 << 20  # every writer uses 32; a page is 4,096

_MIN_ENTRY_BYTES: Final = 8 + 1 + 4 + 1  # a key of one character, a type, a value of one byte
_MIN_TENSOR_BYTES: Final = 8 + 4 + 4 + 8  # an empty name, no dimensions, a type, an offset


@dataclass(frozen=True, slots=True)
class Unread:
    """An array, or a string too long to keep, measured and left in the file at `offset`, its first element."""

    element: ValueType
    count: int
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One metadata value; `offset` is the byte at which it starts."""

    kind: ValueType
    value: Scalar | Unread
    offset: int


@dataclass(frozen=True, slots=True)
class Tensor:
    name: str
    type: str
    shape: tuple[int, ...]  # ggml's order: the first dimension is the contiguous one
    elements: int
    offset: int  # from the start of the file
    size_bytes: int


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    version: int
    entries: Mapping[str, Entry]
    tensors: tuple[Tensor, ...]
    alignment: int
    data_offset: int  # where tensor data starts
    file_bytes: int

    @property
    def metadata(self) -> dict[str, Scalar | Unread]:
        return {key: entry.value for key, entry in self.entries.items()}


@contextmanager
def opened(path: Path) -> Iterator[Cursor]:
    """A cursor over a regular file; every InvalidGGUF raised meanwhile names the file."""
    try:
        # Not blocking: a path that turns out to be a pipe must not hang the process.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            yield Cursor(file, _regular_size(file.fileno()))
    except InvalidGGUF as error:
        raise InvalidGGUF(error.reason, offset=error.offset, path=path) from None
    except OSError as error:
        raise InvalidGGUF(f"it cannot be read: {error.strerror}", path=path) from error


def _regular_size(descriptor: int) -> int:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise InvalidGGUF("it is not a regular file")
    return status.st_size


def parse(cursor: Cursor) -> GGUFHeader:
    """Read the header from the start of the file and prove that everything it describes lies within the file."""
    version, tensor_count, entry_count = _preamble(cursor)
    entries = _entries(cursor, entry_count)
    alignment = _alignment(entries)
    described = [_tensor(cursor, index) for index in range(tensor_count)]
    data_offset = _aligned(cursor.position, alignment) if described else cursor.position
    if data_offset > cursor.file_bytes:
        raise InvalidGGUF("the file ends before its tensor data", offset=cursor.position)
    tensors = _placed(described, alignment, data_offset, cursor.file_bytes)
    return GGUFHeader(version, entries, tensors, alignment, data_offset, cursor.file_bytes)


def elements(cursor: Cursor, array: Unread, key: str) -> Iterator[Scalar | bytes]:
    """The array's elements, read from the file now. Strings come as bytes: nothing says that they are text."""
    cursor.seek(array.offset)
    if array.element is ValueType.STRING:
        yield from cursor.strings(array.count, key)
        return
    for _ in range(array.count):
        yield cursor.scalar(array.element, key)


def _preamble(cursor: Cursor) -> tuple[int, int, int]:
    magic = cursor.take(4, "the magic number")
    if magic != b"GGUF":
        raise InvalidGGUF(f"it starts with {magic!r}, a GGUF file starts with b'GGUF'", offset=0)
    version = cursor.u32("the version")
    if version & 0xFFFF == 0 and version:
        raise InvalidGGUF(
            "it is big-endian; llama.cpp on this machine reads little-endian files only. Get the little-endian file,"
            " or convert this one with gguf-py's gguf_convert_endian",
            offset=4,
        )
    if version not in (2, 3):
        raise InvalidGGUF(f"it has version {version}; versions 2 and 3 can be read", offset=4)
    tensor_count = cursor.u64("the number of tensors")
    entry_count = cursor.u64("the number of metadata entries")
    _count_fits("tensors", tensor_count, MAX_TENSORS, _MIN_TENSOR_BYTES, cursor, offset=8)
    _count_fits("metadata entries", entry_count, MAX_KEYS, _MIN_ENTRY_BYTES, cursor, offset=16)
    return version, tensor_count, entry_count


def _count_fits(what: str, count: int, limit: int, min_bytes: int, cursor: Cursor, *, offset: int) -> None:
    if count > limit:
        raise InvalidGGUF(f"it claims {count:,} {what}; at most {limit:,} make sense", offset=offset)
    if count * min_bytes > cursor.remaining:
        raise InvalidGGUF(f"it claims {count:,} {what}, more than the file has room for", offset=offset)


def _entries(cursor: Cursor, count: int) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    kept_bytes = strings = 0
    for index in range(count):
        start = cursor.position
        key = _text(cursor, f"the key of entry {index}", max_bytes=MAX_KEY_BYTES)
        if not key:
            raise InvalidGGUF(f"the key of entry {index} is empty", offset=start)
        if key in entries:
            raise InvalidGGUF(f"the key {key!r} appears twice", offset=start)
        entry = _entry(cursor, key, keep_bytes=min(MAX_KEPT_STRING_BYTES, MAX_KEPT_BYTES - kept_bytes))
        entries[key] = entry
        if isinstance(entry.value, str):
            kept_bytes += len(entry.value)
        elif isinstance(entry.value, Unread) and entry.value.element is ValueType.STRING:
            strings += entry.value.count
            if strings > MAX_ALL_STRINGS:
                raise InvalidGGUF(f"its arrays hold more than {MAX_ALL_STRINGS:,} strings", offset=entry.offset)
    return entries


def _entry(cursor: Cursor, key: str, *, keep_bytes: int) -> Entry:
    kind = _kind(cursor, f"the type of {key}")
    start = cursor.position
    if kind is ValueType.ARRAY:
        return Entry(kind, _array(cursor, key), start)
    if kind is not ValueType.STRING:
        return Entry(kind, cursor.scalar(kind, key), start)
    length = cursor.u64(f"the length of {key}")
    if length > keep_bytes:
        cursor.skip(length, key)
        return Entry(kind, Unread(ValueType.STRING, 1, start, 8 + length), start)
    return Entry(kind, cursor.take(length, key).decode("utf-8", "replace"), start)


def _array(cursor: Cursor, key: str) -> Unread:
    declared = cursor.position
    element = _kind(cursor, f"the element type of {key}")
    if element is ValueType.ARRAY:
        raise InvalidGGUF(f"{key} is an array of arrays, which llama.cpp does not read", offset=declared)
    count = cursor.u64(f"the length of {key}")
    start = cursor.position
    if element is not ValueType.STRING:
        cursor.skip(count * struct.calcsize(SCALAR_FORMAT[element]), f"{key} of {count:,} elements")
        return Unread(element, count, start, cursor.position - start)
    if count > MAX_STRINGS:
        raise InvalidGGUF(f"{key} claims {count:,} strings; at most {MAX_STRINGS:,} make sense", offset=declared)
    if count * 8 > cursor.remaining:
        raise InvalidGGUF(f"{key} claims {count:,} strings, more than the file has room for", offset=declared)
    for _ in cursor.strings(count, key):
        pass
    return Unread(element, count, start, cursor.position - start)


def _kind(cursor: Cursor, what: str) -> ValueType:
    start = cursor.position
    number = cursor.u32(what)
    try:
        return ValueType(number)
    except ValueError:
        raise InvalidGGUF(f"{what} is {number}, and types go from 0 to 12", offset=start) from None


def _text(cursor: Cursor, what: str, *, max_bytes: int) -> str:
    start = cursor.position
    data = cursor.string(what, max_bytes=max_bytes)
    if b"\0" in data:  # llama.cpp compares C strings: two different keys would be one to it
        raise InvalidGGUF(f"{what} contains a zero byte", offset=start)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidGGUF(f"{what} is not UTF-8", offset=start) from None


def _alignment(entries: Mapping[str, Entry]) -> int:
    entry = entries.get("general.alignment")
    if entry is None:
        return DEFAULT_ALIGNMENT
    value = entry.value
    if entry.kind is not ValueType.UINT32 or not isinstance(value, int):
        raise InvalidGGUF("general.alignment must be a 32-bit unsigned integer", offset=entry.offset)
    if value == 0 or value & (value - 1) or value > MAX_ALIGNMENT:
        limit = f"a power of two up to {MAX_ALIGNMENT:,}"
        raise InvalidGGUF(f"general.alignment is {value}, not {limit}", offset=entry.offset)
    return value


def _tensor(cursor: Cursor, index: int) -> tuple[Tensor, int]:
    """A tensor as described, its offset still relative to the data, and the byte of its description."""
    start = cursor.position
    name = _text(cursor, f"the name of tensor {index}", max_bytes=MAX_NAME_BYTES)

    def wrong(problem: str) -> InvalidGGUF:
        return InvalidGGUF(f"tensor {name} {problem}", offset=start)

    dimensions = cursor.u32(f"the number of dimensions of {name}")
    if dimensions > MAX_DIMENSIONS:
        raise wrong(f"has {dimensions} dimensions; at most {MAX_DIMENSIONS} exist")
    shape = tuple(cursor.u64(f"the shape of {name}") for _ in range(dimensions))
    total = math.prod(shape)
    if not 0 < total < 1 << 63:
        raise wrong(f"has the shape {list(shape)}, whose element count is not usable")
    number = cursor.u32(f"the type of {name}")
    if number not in TENSOR_TYPES:
        raise wrong(f"has the type {number}, which llama.cpp does not know")
    type_name, block, block_bytes = TENSOR_TYPES[number]
    row = shape[0] if shape else 1
    if row % block:
        raise wrong(f"has rows of {row} elements; {type_name} needs a multiple of {block}")
    offset = cursor.u64(f"the offset of {name}")
    return Tensor(name, type_name, shape, total, offset, total // block * block_bytes), start


def _placed(
    described: list[tuple[Tensor, int]], alignment: int, data_offset: int, file_bytes: int
) -> tuple[Tensor, ...]:
    """The tensors at their bytes in the file. llama.cpp wants them back to back, each at the next aligned byte."""
    placed: list[Tensor] = []
    names: set[str] = set()
    expected = 0
    for tensor, described_at in described:
        if tensor.name in names:
            raise InvalidGGUF(f"there are two tensors named {tensor.name!r}", offset=described_at)
        names.add(tensor.name)
        if tensor.offset != expected:
            problem = _misplaced(tensor.offset, expected, alignment)
            raise InvalidGGUF(f"tensor {tensor.name} at {tensor.offset:,} {problem}", offset=described_at)
        start = data_offset + tensor.offset
        end = start + tensor.size_bytes
        if end > file_bytes:
            problem = f"ends at byte {end:,} and the file at {file_bytes:,}: it is incomplete, download it again"
            raise InvalidGGUF(f"tensor {tensor.name} {problem}", offset=described_at)
        expected += _aligned(tensor.size_bytes, alignment)
        placed.append(replace(tensor, offset=start))
    return tuple(placed)


def _misplaced(offset: int, expected: int, alignment: int) -> str:
    if offset % alignment:
        return f"is not at a multiple of the alignment, {alignment}"
    if offset < expected:
        return f"overlaps the tensor before it, after which {expected:,} is free"
    return f"leaves a gap: the tensor before it ends at {expected:,}"


def _aligned(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment
