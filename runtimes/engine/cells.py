"""Counts the cells of a unified KV cache, in which one cell may belong to many sequences.

An exact mirror of what the backend holds, so that the engine knows before a forward pass whether it fits.
It knows token counts only, no tokens.
"""

from array import array
from collections.abc import Iterable

import numpy as np


class CellLedger:
    """Reference counts of `capacity` cells, and which of them each sequence uses, in order."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._references = np.zeros(capacity, dtype=np.int32)
        self._free = np.arange(capacity - 1, -1, -1, dtype=np.int32)  # a stack; its top is at `free - 1`
        self.free = capacity
        self._cells: dict[int, array[int]] = {}  # of type "i"; it grows by one in each step of a stream

    @property
    def used(self) -> int:
        return self.capacity - self.free

    def length(self, sequence: int) -> int:
        cells = self._cells.get(sequence)
        return 0 if cells is None else len(cells)

    def distinct(self, parts: Iterable[tuple[int, int]]) -> int:
        """Cells in use by the first tokens of some sequences, shared ones counted once: `(sequence, n_tokens)` each."""
        in_use = np.zeros(self.capacity, dtype=bool)
        for sequence, n_tokens in parts:
            if sequence in self._cells:
                in_use[np.array(self._cells[sequence][:n_tokens])] = True
        return int(in_use.sum())

    def extend(self, sequence: int, n_tokens: int) -> None:
        if n_tokens > self.free:
            raise ValueError(f"{n_tokens} cells wanted, {self.free} free")
        if n_tokens == 1:  # each step of each stream: arrays would take longer
            self.free -= 1
            cell = int(self._free[self.free])
            self._references[cell] = 1
            self._cells.setdefault(sequence, array("i")).append(cell)
            return
        taken = self._free[self.free - n_tokens : self.free]
        self.free -= n_tokens
        self._references[taken] = 1
        self._cells.setdefault(sequence, array("i")).frombytes(taken.tobytes())

    def fork(self, source: int, target: int, n_tokens: int) -> None:
        shared = self._cells[source][:n_tokens]
        if len(shared) != n_tokens or target in self._cells:
            raise ValueError(f"cannot share {n_tokens} cells of sequence {source} with {target}")
        self._references[np.array(shared)] += 1
        self._cells[target] = shared

    def truncate(self, sequence: int, n_tokens: int) -> None:
        cells = self._cells.get(sequence)
        if cells is None:
            return
        dropped = np.array(cells[n_tokens:], dtype=np.int32)
        self._references[dropped] -= 1
        freed = dropped[self._references[dropped] == 0]
        self._free[self.free : self.free + len(freed)] = freed
        self.free += len(freed)
        if n_tokens == 0:
            del self._cells[sequence]
        else:
            del cells[n_tokens:]
