"""Model files that are wrong in one way: the real model with other metadata, or with damaged bytes.

Knows as much of GGUF v3 as it takes to walk over the metadata: header, key-value pairs, tensor infos, tensor data.
"""

import os
import shutil
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

STRING, ARRAY = 8, 9
_FIXED_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # size by value type
HEADER = struct.Struct("<4sIQQ")  # magic, version, tensors, key-value pairs


@dataclass(frozen=True, slots=True)
class _Layout:
    pairs: dict[str, bytes]  # key -> its pair, as in the file
    tensor_infos: bytes
    n_tensors: int
    data_offset: int  # where tensor data begins
    alignment: int


def rewrite(
    source: Path, target: Path, strings: Mapping[str, str | None], renamed: Mapping[str, str] | None = None
) -> Path:
    """A copy of the model with those string values set; None removes the key. Tensors stay as they are.

    `renamed`: tokens of the vocabulary that are spelled otherwise in the copy.
    """
    with source.open("rb") as file:
        layout = _read(file)
        pairs = {key: pair for key, pair in layout.pairs.items() if key not in strings}
        pairs |= {key: _string_pair(key, value) for key, value in strings.items() if value is not None}
        for old, new in (renamed or {}).items():
            pairs["tokenizer.ggml.tokens"] = pairs["tokenizer.ggml.tokens"].replace(_string(old), _string(new), 1)
        head = HEADER.pack(b"GGUF", 3, layout.n_tensors, len(pairs)) + b"".join(pairs.values()) + layout.tensor_infos
        file.seek(layout.data_offset)
        with target.open("wb") as copy:
            copy.write(head)
            copy.write(bytes(-len(head) % layout.alignment))
            shutil.copyfileobj(file, copy, 1 << 20)
    return target


def string_of(source: Path, key: str) -> str:
    """A string value of the model's metadata."""
    with source.open("rb") as file:
        pair = _read(file).pairs[key]
    return pair[len(_string(key)) + 4 + 8 :].decode()


def truncate(source: Path, target: Path, size_bytes: int) -> Path:
    """The first bytes of the model."""
    with source.open("rb") as file, target.open("wb") as copy:
        copy.write(file.read(size_bytes))
    return target


def damage(source: Path, target: Path, at: int, replacement: bytes) -> Path:
    """A copy of the model with other bytes at an offset."""
    shutil.copyfile(source, target)
    with target.open("r+b") as copy:
        copy.seek(at)
        copy.write(replacement)
    return target


def tensor_data_offset(source: Path) -> int:
    with source.open("rb") as file:
        return _read(file).data_offset


def _string_pair(key: str, value: str) -> bytes:
    return _string(key) + struct.pack("<I", STRING) + _string(value)


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _number(file: BinaryIO, form: str) -> int:
    (value,) = struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))
    return int(value)


def _read(file: BinaryIO) -> _Layout:
    magic, version, n_tensors, n_pairs = HEADER.unpack(file.read(HEADER.size))
    assert (magic, version) == (b"GGUF", 3)
    pairs: dict[str, bytes] = {}
    alignment = 32  # GGUF's default
    for _ in range(n_pairs):
        start = file.tell()
        key = file.read(_number(file, "Q")).decode()
        kind = _number(file, "I")
        if key == "general.alignment":
            alignment = _number(file, "I")
        else:
            _skip(file, kind)
        pairs[key] = _since(file, start)
    start = file.tell()
    for _ in range(n_tensors):
        file.seek(_number(file, "Q"), os.SEEK_CUR)  # name
        file.seek(8 * _number(file, "I"), os.SEEK_CUR)  # dimensions
        file.seek(4 + 8, os.SEEK_CUR)  # type, offset
    tensor_infos = _since(file, start)
    end = file.tell()
    return _Layout(pairs, tensor_infos, n_tensors, end + -end % alignment, alignment)


def _skip(file: BinaryIO, kind: int) -> None:
    if kind == STRING:
        file.seek(_number(file, "Q"), os.SEEK_CUR)
    elif kind == ARRAY:
        element, count = _number(file, "I"), _number(file, "Q")
        if element in _FIXED_BYTES:
            file.seek(count * _FIXED_BYTES[element], os.SEEK_CUR)
        else:
            for _ in range(count):
                _skip(file, element)
    else:
        file.seek(_FIXED_BYTES[kind], os.SEEK_CUR)


def _since(file: BinaryIO, start: int) -> bytes:
    end = file.tell()
    file.seek(start)
    return file.read(end - start)
