"""A backend's vocabulary as llguidance reads it."""

from llguidance import LLTokenizer

from runtimes.contracts import Backend


class _Tokens:
    """What `LLTokenizer` asks of a tokenizer."""

    def __init__(self, backend: Backend) -> None:
        info = backend.info
        ends = frozenset(info.end_tokens)
        # A token that adds nothing to a text is one that no text may be matched with.
        self.special_token_ids = [t for t in range(info.n_vocab) if t in ends or not backend.piece(t)]
        special = frozenset(self.special_token_ids)
        self.tokens = [
            backend.token_text(t).encode() if t in special else backend.piece(t) for t in range(info.n_vocab)
        ]
        self.eos_token_id = info.end_tokens[0]
        self.bos_token_id = info.bos_id
        self.is_tokenizer_wrapper = True
        self._backend = backend

    def __call__(self, text: str) -> list[int]:
        return self._backend.tokenize(text, add_special=False, parse_special=False)


def tokenizer(backend: Backend) -> LLTokenizer:
    """Takes some tenths of a second for a large vocabulary."""
    return LLTokenizer(_Tokens(backend), eos_token=list(backend.info.end_tokens))  # type: ignore[arg-type] # its protocol
