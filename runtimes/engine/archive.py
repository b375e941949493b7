"""Which prefixes are kept outside the KV cache, in host memory, where they slow no step. Pure: it holds no states.

Least recently used first out. A prefix that another one contains is not kept twice.
"""

from collections import OrderedDict

import numpy as np

from runtimes.contracts import TokenArray
from runtimes.engine.prefix_tree import Match, PrefixTree


class Archive:
    def __init__(self, capacity_tokens: int) -> None:
        self.capacity_tokens = capacity_tokens
        self.used_tokens = 0
        self._tokens: OrderedDict[int, TokenArray] = OrderedDict()
        self._lengths: dict[int, int] = {}
        self._tree = PrefixTree()
        self._next_key = 0

    @property
    def free_tokens(self) -> int:
        return self.capacity_tokens - self.used_tokens

    def __len__(self) -> int:
        return len(self._tokens)

    def __contains__(self, key: int) -> bool:
        return key in self._tokens

    def length(self, key: int) -> int:
        return self._lengths[key]

    def longest(self, tokens: TokenArray) -> Match:
        """The key and the tokens that it shares with these; (-1, 0) for none."""
        return self._tree.longest(tokens, self._lengths)[0]

    def touch(self, key: int) -> None:
        """It was of use."""
        self._tokens.move_to_end(key)

    def put(self, tokens: TokenArray) -> tuple[int | None, list[int]]:
        """The key under which to keep these, or None when that is not worth it; and the keys that must go for it."""
        match = self.longest(tokens)
        if match.tokens == len(tokens):
            self.touch(match.sequence)
            return None, []
        if len(tokens) > self.capacity_tokens // 2:  # one must not push out all others
            return None, []
        gone = [key for key, older in self._tokens.items() if _begins_with(tokens, older)]
        for key in gone:
            self._forget(key)
        while self.used_tokens + len(tokens) > self.capacity_tokens:
            oldest = next(iter(self._tokens))
            self._forget(oldest)
            gone.append(oldest)
        key, self._next_key = self._next_key, self._next_key + 1
        self._tokens[key] = tokens
        self._lengths[key] = len(tokens)
        self._tree.insert(key, tokens)
        self.used_tokens += len(tokens)
        return key, gone

    def _forget(self, key: int) -> None:
        self.used_tokens -= self._lengths.pop(key)
        del self._tokens[key]
        self._tree.remove(key)


def _begins_with(tokens: TokenArray, prefix: TokenArray) -> bool:
    return len(prefix) <= len(tokens) and np.array_equal(prefix, tokens[: len(prefix)])
