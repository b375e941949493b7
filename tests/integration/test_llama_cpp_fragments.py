"""With a real vocabulary, a text in parts has the tokens that llama.cpp itself finds in the whole."""

import ctypes
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import llama_cpp as lib
import pytest

from runtimes.llama_cpp.vocabulary import Vocabulary

WORDS = (
    "hello",
    "\n",
    "  ",
    " 123",
    "é",
    "日本",
    "<|",
    "|>",
    "<|im_start",
    "im_end|>",
    "user\n",
    "don't",
    "🙂",
    "\x00",
)


@pytest.fixture(scope="module")
def handle(model_path: Path) -> Iterator[ctypes.c_void_p]:
    lib.llama_backend_init()
    params = lib.llama_model_default_params()
    params.vocab_only = True
    model = lib.llama_model_load_from_file(str(model_path).encode(), params)
    yield lib.llama_model_get_vocab(model)
    lib.llama_model_free(model)


@pytest.fixture(scope="module")
def whole(handle: ctypes.c_void_p) -> Callable[[str], list[int]]:
    def tokenize(text: str) -> list[int]:
        data = text.encode()
        buffer = (lib.llama_token * (len(data) + 8))()
        n = lib.llama_tokenize(handle, data, len(data), buffer, len(buffer), False, True)  # noqa: FBT003 - a C function
        tokens: list[int] = buffer[:n]
        return tokens

    return tokenize


def test_random_mixtures_of_text_and_special_tokens(handle: ctypes.c_void_p, whole: Callable[[str], list[int]]) -> None:
    vocabulary = Vocabulary(handle)
    rng = random.Random(7)
    pieces = [*WORDS, *vocabulary.control_tokens]
    cut = 0
    for _ in range(2000):
        text = "".join(rng.choices(pieces, k=rng.randrange(20)))
        cut += any(token in text for token in vocabulary.control_tokens)
        assert vocabulary.tokenize(text, add_special=False, parse_special=True) == whole(text)
    assert cut > 1000
