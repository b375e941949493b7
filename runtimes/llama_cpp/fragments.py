"""Where a text can be cut so that its parts have the tokens that the whole has, and the parts' tokens remembered.

llama.cpp's tokenizer looks for special tokens first, and tokenizes what stands between them apart. A conversation
sent again with one more turn is so mostly text whose tokens are known: they take 4 us each to find anew (measured).

Source: `tokenizer_st_partition` in llama.cpp's `llama-vocab.cpp`.
"""

import functools
import re
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping

REMEMBERED = 1024
LONGEST_REMEMBERED = 16384  # characters, of 1 to 4 bytes, with 4 bytes for each token: 16 to 128 MB at the very most


class Fragments:
    """`cuts` are special tokens with their ids; `specials` all texts that the tokenizer looks for. A token that can
    overlap another one is not cut at: which of the two wins is the tokenizer's secret."""

    def __init__(
        self, cuts: Mapping[str, int], specials: Collection[str], tokenize: Callable[[str], list[int]]
    ) -> None:
        alone = standing_alone(set(specials))
        self._ids = {text: token for text, token in cuts.items() if text in alone}
        self._pattern = re.compile("|".join(map(re.escape, self._ids))) if self._ids else None
        self._tokenize = tokenize
        self._remembered = functools.lru_cache(REMEMBERED)(lambda text: array("i", tokenize(text)))

    def tokens(self, text: str) -> list[int]:
        tokens: list[int] = []
        for part, cut in self._parts(text):
            if part:
                tokens += self._remembered(part) if len(part) <= LONGEST_REMEMBERED else self._tokenize(part)
            if cut is not None:
                tokens.append(self._ids[cut])
        return tokens

    def _parts(self, text: str) -> Iterator[tuple[str, str | None]]:
        """(text before a cut, the cut), and (the rest, None)."""
        position = 0
        for found in self._pattern.finditer(text) if self._pattern else ():
            yield text[position : found.start()], found[0]
            position = found.end()
        yield text[position:], None


def standing_alone(texts: Collection[str]) -> set[str]:
    """Those that cannot share characters with another one, nor with themselves, wherever both stand in a text."""
    everything = "\0".join(texts)
    contained = [text for text in texts if everything.count(text) > 1]
    beginnings = {text[:n] for text in texts for n in range(1, len(text))}
    ends = {text[n:] for text in texts for n in range(1, len(text))}

    def overlaps(text: str) -> bool:
        return any(text[n:] in beginnings or text[:n] in ends for n in range(1, len(text)))

    return {text for text in texts if not overlaps(text) and not any(part in text for part in contained)}
