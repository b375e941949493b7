"""A backend's vocabulary as llguidance reads it."""

from collections.abc import Callable
from dataclasses import dataclass

from llguidance import LLTokenizer

from runtimes.contracts import Backend


@dataclass(frozen=True, slots=True)
class Vocabulary:
    tokens: list[bytes]
    special: list[int]  # what no text can be matched with
    ends: list[int]


def vocabulary_of(backend: Backend) -> Vocabulary:
    info = backend.info
    ends = frozenset(info.end_tokens)
    tokens = [backend.piece(token) for token in range(info.n_vocab)]
    special = [token for token, piece in enumerate(tokens) if token in ends or not piece]
    for token in special:
        tokens[token] = backend.token_text(token).encode()
    return Vocabulary(tokens, special, list(info.end_tokens))


class Greedy:
    """Tokenizes by the longest token at each place, for where the model's own tokenizer is not at hand."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        special = frozenset(vocabulary.special)
        self._ids = {piece: token for token, piece in enumerate(vocabulary.tokens) if token not in special}
        self._longest = max(map(len, self._ids), default=0)

    def __call__(self, text: str) -> list[int]:
        data, tokens, position = text.encode(), [], 0
        while position < len(data):
            lengths = range(min(self._longest, len(data) - position), 0, -1)
            n = next((n for n in lengths if data[position : position + n] in self._ids), None)
            if n is not None:
                tokens.append(self._ids[data[position : position + n]])
            position += n or 1  # a byte that no token has cannot be said
        return tokens


class _Tokens:
    """What `LLTokenizer` asks of a tokenizer."""

    is_tokenizer_wrapper = True

    def __init__(self, vocabulary: Vocabulary, tokenize: Callable[[str], list[int]]) -> None:
        self.tokens = vocabulary.tokens
        self.special_token_ids = vocabulary.special
        self.eos_token_id = vocabulary.ends[0]
        self.bos_token_id = None
        self._tokenize = tokenize

    def __call__(self, text: str) -> list[int]:
        return self._tokenize(text)


def tokenizer(vocabulary: Vocabulary, tokenize: Callable[[str], list[int]]) -> LLTokenizer:
    """Takes some tenths of a second for a large vocabulary."""
    return LLTokenizer(_Tokens(vocabulary, tokenize), eos_token=vocabulary.ends)  # type: ignore[arg-type] # its protocol
