"""A llama.cpp vocabulary: text to tokens and back. Its functions may be called from any thread."""

import ctypes
import functools
from typing import Any

import llama_cpp as lib

from runtimes.llama_cpp.fragments import Fragments

# What llama.cpp matches inside text when special tokens are parsed.
_SPECIAL = lib.LLAMA_TOKEN_ATTR_CONTROL | lib.LLAMA_TOKEN_ATTR_UNKNOWN
_MATCHED = _SPECIAL | lib.LLAMA_TOKEN_ATTR_USER_DEFINED
_STRIPS = lib.LLAMA_TOKEN_ATTR_LSTRIP | lib.LLAMA_TOKEN_ATTR_RSTRIP  # eats blanks of the text beside it


class Vocabulary:
    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.n_tokens: int = lib.llama_vocab_n_tokens(handle)
        tokens = range(self.n_tokens)
        self._pieces = [self._read_piece(token, special=False) for token in tokens]
        self._longest_bytes = max(len(piece) for piece in self._pieces)
        self.end_tokens = tuple(token for token in tokens if lib.llama_vocab_is_eog(handle, token))
        attributes = {token: lib.llama_vocab_get_attr(handle, token) for token in tokens}
        special = (token for token in tokens if attributes[token] & _SPECIAL)
        self.control_tokens = frozenset(self.text(token) for token in special) - {""}
        self._fragments = self._find_fragments(attributes)
        bos: int = lib.llama_vocab_bos(handle)
        eos: int = lib.llama_vocab_eos(handle)
        self.bos = bos if bos >= 0 else None
        self.adds_bos = bool(lib.llama_vocab_get_add_bos(handle)) and self.bos is not None
        self.bos_text = self.text(bos) if bos >= 0 else ""
        self.eos_text = self.text(eos) if eos >= 0 else ""

    def text(self, token: int) -> str:
        """The token's own name, special tokens included."""
        raw = lib.llama_vocab_get_text(self._handle, token)
        return raw.decode("utf-8", "replace") if raw else ""

    def piece(self, token: int) -> bytes:
        return self._pieces[token]

    def least_tokens(self, text_bytes: int) -> int:
        """No text of so many bytes has fewer tokens; a cheap bound for texts that are far too long."""
        return -(-text_bytes // self._longest_bytes)

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        if self._fragments is not None and parse_special and not add_special:
            return self._fragments.tokens(text)
        return self._tokenize(text, add_special=add_special, parse_special=parse_special)

    def _tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        data = text.encode()
        capacity = len(data) + 8  # a token has a byte at least; BOS, EOS and a space in front may be added
        buffer = (lib.llama_token * capacity)()
        n = lib.llama_tokenize(self._handle, data, len(data), buffer, capacity, add_special, parse_special)
        if n < 0:
            capacity = -n
            buffer = (lib.llama_token * capacity)()
            n = lib.llama_tokenize(self._handle, data, len(data), buffer, capacity, add_special, parse_special)
        if n < 0:
            raise ValueError("the text cannot be tokenized")
        tokens: list[int] = buffer[:n]
        return tokens

    def detokenize(self, tokens: list[int]) -> str:
        """The text of tokens, control tokens included, as llama.cpp joins them."""
        array = (lib.llama_token * len(tokens))(*tokens)
        capacity = sum(len(self._pieces[token]) or len(self.text(token)) * 4 for token in tokens) + 16
        buffer = ctypes.create_string_buffer(capacity)
        n = lib.llama_detokenize(self._handle, array, len(tokens), buffer, capacity, False, True)  # noqa: FBT003 - a C function
        if n < 0:
            capacity = -n
            buffer = ctypes.create_string_buffer(capacity)
            n = lib.llama_detokenize(self._handle, array, len(tokens), buffer, capacity, False, True)  # noqa: FBT003 - a C function
        return buffer.raw[: max(n, 0)].decode("utf-8", "replace")

    def _find_fragments(self, attributes: dict[int, int]) -> Fragments | None:
        # Tokenizers of other kinds treat a text that follows a special token in ways of their own.
        if lib.llama_vocab_type(self._handle) != lib.LLAMA_VOCAB_TYPE_BPE:
            return None
        matched = {self.text(token): token for token, kind in attributes.items() if kind & _MATCHED}
        cuts = {
            text: token
            for text, token in matched.items()
            if attributes[token] & _SPECIAL and not attributes[token] & _STRIPS
        }
        whole = functools.partial(self._tokenize, add_special=False, parse_special=True)
        return Fragments(cuts, matched, whole)

    def _read_piece(self, token: int, *, special: bool) -> bytes:
        buffer = ctypes.create_string_buffer(64)
        n = lib.llama_token_to_piece(self._handle, token, buffer, len(buffer), 0, special)
        if n < 0:
            buffer = ctypes.create_string_buffer(-n)
            n = lib.llama_token_to_piece(self._handle, token, buffer, len(buffer), 0, special)
        return buffer.raw[: max(n, 0)]
