"""The shape of JSON text, measured before it is parsed: how deep, how many values, any number of great length.

A parser builds objects as fast as it reads: 10 MB of `[],[],…` are 3 million lists, 250 MB, and most of a second in
which the interpreter serves nobody else. So text is measured first, in pieces, and refused while it is still text.
On text that is not JSON the figures mean nothing; the parser refuses that. Pure; knows no limit.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

PIECE_BYTES = 256 * 1024  # a piece takes 12 ms at worst on a slow core, and other threads get their turn between two

_NOT_STRUCTURE = bytes(byte for byte in range(256) if byte not in b"[]{},:")
_WEIGHT = [1 if byte in b"[{" else -1 if byte in b"]}" else 0 for byte in range(256)]
# Nineteen digits in a row, or an exponent of three. To see one that a piece's edge cuts, it needs so much of the text
# before the edge.
_GREAT_NUMBER = re.compile(rb"[0-9]{19}|[eE]\+?[0-9]{3}")
_OVERLAP_BYTES = 18


@dataclass(frozen=True, slots=True)
class Shape:
    depth: int  # of arrays and objects within each other
    marks: int  # `[`, `{`, `,` and `:` outside strings; every value and key but the outermost follows one
    great_numbers: bool  # some number may be outside 64-bit integers or finite floats


def measure(text: bytes | bytearray) -> Iterator[Shape]:
    """The shape of the text so far, after each piece, so that a caller can stop early."""
    depths = [0]
    deepest = marks = 0
    great_numbers = in_string = False
    overlap = b""
    for piece in _pieces(text):
        if b"\\" in piece:  # what a backslash escapes is no quote
            piece = piece.replace(b"\\\\", b"__").replace(b'\\"', b"__")  # noqa: PLW2901 - the same piece, made plain
        parts = piece.split(b'"')
        outside = b'"'.join(parts[1 if in_string else 0 :: 2])
        in_string ^= len(parts) % 2 == 0
        structure = outside.translate(None, _NOT_STRUCTURE)
        marks += len(structure) - structure.count(b"]") - structure.count(b"}")
        brackets = structure.translate(None, b",:")
        depths = list(accumulate(map(_WEIGHT.__getitem__, brackets), initial=depths[-1]))
        deepest = max([deepest, max(depths)])
        numbers = overlap + outside
        great_numbers = great_numbers or _GREAT_NUMBER.search(numbers) is not None
        overlap = b"" if in_string else numbers[-_OVERLAP_BYTES:]
        yield Shape(deepest, marks, great_numbers)


def _pieces(text: bytes | bytearray) -> Iterator[bytes]:
    """The text in pieces, none of which ends between a backslash and what it escapes."""
    view = memoryview(text)
    start = 0
    while start < len(text):
        piece = bytes(view[start : start + PIECE_BYTES])
        trailing = len(piece) - len(piece.rstrip(b"\\"))
        if trailing % 2 == 1 and len(piece) > 1:
            piece = piece[:-1]
        start += len(piece)
        yield piece
