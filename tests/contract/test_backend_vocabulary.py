"""What every backend's vocabulary promises: text to tokens and back, from any thread."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtimes.contracts import Backend, Row

TEXTS = [
    "Hello, world!",
    "  leading and trailing spaces  ",
    "tabs\tand\nlines\r\n\n\n",
    "naïve café — “quotes” …",
    "日本語のテキスト 한국어",
    "🙂👩‍👩‍👧‍👦 🇫🇷",
    "e\u0301 combining",
    "\u200b\u202e\ufeff",
    "def f(x):\n    return x ** 2  # ok",
    "0123456789 3.14159",
]


def joined(backend: Backend, tokens: list[int]) -> str:
    return b"".join(backend.piece(token) for token in tokens).decode(errors="replace")


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_the_round_trip(backend: Backend, text: str) -> None:
    tokens = backend.tokenize(text, add_special=False, parse_special=False)
    assert all(0 <= token < backend.info.n_vocab for token in tokens)
    # Vocabularies of the SentencePiece kind put one space in front.
    assert backend.detokenize(tokens) in (text, " " + text)
    assert joined(backend, tokens) in (text, " " + text)


# Small vocabularies lack the bytes of control characters, and those that only begin characters nobody has assigned.
WRITTEN = st.characters(max_codepoint=0x1FAFF, exclude_categories=["Cs", "Cc", "Cn", "Co"])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(WRITTEN, max_size=40))
def test_any_text_survives_the_round_trip(backend: Backend, text: str) -> None:
    tokens = backend.tokenize(text, add_special=False, parse_special=False)
    assert joined(backend, tokens).removeprefix(" ") == text.removeprefix(" ")


@pytest.mark.parametrize("parse_special", [False, True])
def test_the_empty_text_has_no_tokens(backend: Backend, *, parse_special: bool) -> None:
    assert backend.tokenize("", add_special=False, parse_special=parse_special) == []
    assert backend.detokenize([]) == ""


def test_a_null_character_is_not_the_end_of_the_text(backend: Backend) -> None:
    tokens = backend.tokenize("before\0after", add_special=False, parse_special=False)
    assert joined(backend, tokens).strip(" ").endswith("after")


def test_a_long_text_is_tokenized_whole(backend: Backend) -> None:
    text = "word " * 20_000
    assert joined(backend, backend.tokenize(text, add_special=False, parse_special=False)).strip() == text.strip()


def test_control_tokens_are_parsed_only_where_asked(backend: Backend) -> None:
    """A user's text that spells a control token must stay text."""
    eos = backend.info.eos_token
    parsed = backend.tokenize(f"a{eos}", add_special=False, parse_special=True)
    plain = backend.tokenize(f"a{eos}", add_special=False, parse_special=False)
    assert parsed[-1] in backend.info.end_tokens
    assert not set(plain) & set(backend.info.end_tokens)
    assert joined(backend, plain).strip() == f"a{eos}"


def test_every_control_token_s_name_is_parsed_to_one_token_without_text(backend: Backend) -> None:
    assert backend.info.eos_token in backend.control_tokens
    for name in backend.control_tokens:
        tokens = backend.tokenize(name, add_special=False, parse_special=True)
        assert len(tokens) == 1, name
        assert backend.piece(tokens[0]) == b""
        assert backend.token_text(tokens[0]) == name


def test_a_special_token_in_front_is_added_only_where_asked(backend: Backend) -> None:
    with_it = backend.tokenize("hi", add_special=True, parse_special=False)
    without = backend.tokenize("hi", add_special=False, parse_special=False)
    if backend.info.adds_bos:
        assert backend.token_text(with_it[0]) == backend.info.bos_token
        assert with_it[-len(without) :] == without
    else:
        assert with_it == without


def test_every_token_has_a_piece_and_a_name(backend: Backend) -> None:
    for token in range(backend.info.n_vocab):
        assert isinstance(backend.piece(token), bytes)
        assert isinstance(backend.token_text(token), str)
    for token in backend.info.end_tokens:
        assert backend.piece(token) == b""
        assert backend.token_text(token)


@pytest.mark.parametrize("text", [*TEXTS, "a" * 300, "=" * 200, " " * 150, "\n" * 90, "-+" * 100])
def test_no_text_has_fewer_tokens_than_the_bound(backend: Backend, text: str) -> None:
    tokens = backend.tokenize(text, add_special=False, parse_special=False)
    assert 0 < backend.least_tokens(len(text.encode())) <= len(tokens)
    assert backend.least_tokens(0) == 0


def test_what_a_model_says_of_itself_is_consistent(backend: Backend) -> None:
    info = backend.info
    assert info.end_tokens
    assert all(0 <= token < info.n_vocab for token in info.end_tokens)
    assert info.context_tokens <= info.kv_tokens
    assert info.max_sequences > 1
    assert info.max_batch_tokens > 0
    assert info.eos_token
    assert info.chat_template


def test_text_may_be_tokenized_in_other_threads_beside_a_forward(backend: Backend) -> None:
    def work(i: int) -> list[str]:
        texts = [f"{text} {i}.{j}" for j, text in enumerate(TEXTS * 3)]
        return [
            text
            for text in texts
            if joined(backend, backend.tokenize(text, add_special=False, parse_special=False)).removeprefix(" ")
            != text.removeprefix(" ")
        ]

    prompt = backend.tokenize(TEXTS[0] * 4, add_special=False, parse_special=False)
    alone = backend.forward([Row(t, i, 0, i == len(prompt) - 1) for i, t in enumerate(prompt)]).copy()
    with ThreadPoolExecutor(4) as pool:
        wrong = [pool.submit(work, i) for i in range(8)]
        for _ in range(4):
            backend.truncate(0, 0)
            beside = backend.forward([Row(t, i, 0, i == len(prompt) - 1) for i, t in enumerate(prompt)])
            assert np.array_equal(alone, beside)
        assert [each.result() for each in wrong] == [[]] * 8
