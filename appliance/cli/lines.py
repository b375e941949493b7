"""The lines of a file of requests, for commands that explain many."""

import sys
from collections.abc import Iterator
from pathlib import Path


def lines(path: Path) -> Iterator[bytes]:
    """Without the empty ones; `-` is standard input. Raises OSError."""
    if str(path) == "-":
        yield from filter(bytes.strip, sys.stdin.buffer)
        return
    with path.open("rb") as file:
        yield from filter(bytes.strip, file)
