"""Finds the resident sequence that shares the longest prefix with a new prompt.

A radix tree over the tokens of the resident sequences. It knows nothing of KV cells: how much of a sequence is
computed by now is passed in with each question.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from runtimes.contracts import TokenArray


@dataclass(slots=True)
class _Node:
    edge: TokenArray  # the tokens from the parent to here
    sequences: set[int]  # those that pass through or end here
    children: dict[int, "_Node"] = field(default_factory=dict)  # by first token of the child's edge


@dataclass(frozen=True, slots=True)
class Match:
    sequence: int
    tokens: int


NO_MATCH = Match(-1, 0)


def _common(a: TokenArray, b: TokenArray) -> int:
    n = min(len(a), len(b))
    different = np.nonzero(a[:n] != b[:n])[0]
    return int(different[0]) if len(different) else n


class PrefixTree:
    def __init__(self) -> None:
        self._root = _Node(np.empty(0, np.int32), set())
        self._tokens: dict[int, TokenArray] = {}

    def insert(self, sequence: int, tokens: TokenArray) -> None:
        """Adds a sequence, or replaces what it held."""
        self.remove(sequence)
        self._tokens[sequence] = tokens
        node, rest = self._root, tokens
        node.sequences.add(sequence)
        while len(rest):
            child = node.children.get(int(rest[0]))
            if child is None:
                node.children[int(rest[0])] = _Node(rest, {sequence})
                return
            shared = _common(child.edge, rest)
            if shared < len(child.edge):  # split the edge where the two part
                lower = _Node(child.edge[shared:], set(child.sequences), child.children)
                child.edge, child.children = child.edge[:shared], {int(lower.edge[0]): lower}
            child.sequences.add(sequence)
            node, rest = child, rest[shared:]

    def remove(self, sequence: int) -> None:
        tokens = self._tokens.pop(sequence, None)
        if tokens is None:
            return
        node, depth = self._root, 0
        node.sequences.discard(sequence)
        while depth < len(tokens):
            child = node.children[int(tokens[depth])]
            child.sequences.discard(sequence)
            if not child.sequences:
                del node.children[int(tokens[depth])]
                return
            depth += len(child.edge)
            node = child

    def longest(self, tokens: TokenArray, computed: Mapping[int, int]) -> tuple[Match, Match]:
        """The best match by tokens computed so far, and the best once every resident sequence is prefilled.

        `computed` gives, for each sequence in the tree, how many of its tokens have their KV in the cache.
        """
        now, later = NO_MATCH, NO_MATCH
        node, depth = self._root, 0
        while depth < len(tokens):
            child = node.children.get(int(tokens[depth]))
            if child is None:
                break
            shared = _common(child.edge, tokens[depth:])
            depth += shared
            for sequence in child.sequences:
                usable = min(depth, computed[sequence])
                if usable > now.tokens:
                    now = Match(sequence, usable)
            later = Match(next(iter(child.sequences)), depth)
            if shared < len(child.edge):
                break
            node = child
        return now, later
