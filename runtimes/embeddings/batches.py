"""Which texts go to the worker next. Pure: it knows texts and whom they are for, no worker and no clock.

Measured on two cores, one thread: 16 texts of 12 words take 5 ms each in one batch, 8 ms each alone; with 100 words
there is nothing to gain. A batch costs what its longest text does, times the number of texts.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

MAX_TEXTS = 16
# Texts times the bytes of the longest: 16 short questions, or one text that fills the window. Whoever comes next
# waits for it: some 0.1 s.
MAX_PADDED_BYTES = 2_048

Owner = TypeVar("Owner")


@dataclass(frozen=True, slots=True)
class Piece(Generic[Owner]):
    """One text of one request."""

    owner: Owner
    index: int
    text: str


class Waiting(Generic[Owner]):
    """Requests in turn, one text each, so that a request of a thousand texts does not hold up a short one."""

    def __init__(self) -> None:
        self._pieces: dict[Owner, deque[Piece[Owner]]] = {}  # in the order of their turns

    def __len__(self) -> int:
        """How many requests have texts that wait."""
        return len(self._pieces)

    def add(self, owner: Owner, texts: Sequence[str]) -> None:
        self._pieces[owner] = deque(Piece(owner, index, text) for index, text in enumerate(texts))

    def drop(self, owner: Owner) -> None:
        self._pieces.pop(owner, None)

    def drop_all(self) -> list[Owner]:
        owners = list(self._pieces)
        self._pieces.clear()
        return owners

    def next_batch(self) -> list[Piece[Owner]]:
        """Takes it; empty when nothing waits."""
        batch: list[Piece[Owner]] = []
        longest_bytes = 0
        while self._pieces and len(batch) < MAX_TEXTS:
            owner, pieces = next(iter(self._pieces.items()))
            longest_bytes = max(longest_bytes, len(pieces[0].text.encode()))
            if batch and longest_bytes * (len(batch) + 1) > MAX_PADDED_BYTES:
                break
            batch.append(pieces.popleft())
            del self._pieces[owner]
            if pieces:
                self._pieces[owner] = pieces  # to the end of the row
        return batch
