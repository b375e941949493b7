"""Cutting a text at special tokens leaves its tokens as they are, and text seen before is not tokenized again."""

import re

from hypothesis import given
from hypothesis import strategies as st

from runtimes.llama_cpp.fragments import LONGEST_REMEMBERED, Fragments, standing_alone

IDS = {"<s>": 1, "<|end|>": 2, "<|end|>\n": 3, "[INST]": 4, "<|a": 5}


class Tokenizer:
    """Matches special tokens, the longest first, and gives every other character a token of its own."""

    def __init__(self, ids: dict[str, int]) -> None:
        self._ids = ids
        longest_first = sorted(filter(None, ids), key=len, reverse=True)
        self._pattern = re.compile("|".join([*map(re.escape, longest_first), "(?s:.)"]))
        self.asked: list[str] = []

    def __call__(self, text: str) -> list[int]:
        self.asked.append(text)
        return [self._ids.get(part, 1000 + ord(part[0])) for part in self._pattern.findall(text)]


def test_a_text_is_cut_at_special_tokens_that_stand_alone() -> None:
    tokenize = Tokenizer(IDS)
    assert Fragments(IDS, IDS, tokenize).tokens("<s>ab[INST]") == [1, 1000 + ord("a"), 1000 + ord("b"), 4]
    assert tokenize.asked == ["ab"]


def test_tokens_that_can_overlap_are_left_to_the_tokenizer() -> None:
    assert standing_alone(IDS.keys()) == {"<s>", "[INST]", "<|a"}
    assert standing_alone(["<a>", "a"]) == set()
    assert standing_alone(["abc", "cd"]) == set()
    assert standing_alone(["aba"]) == set()
    assert standing_alone(["<|x|>", "<|xy|>", "<|z|>"]) == {"<|x|>", "<|xy|>", "<|z|>"}


def test_a_special_token_that_is_no_cut_is_left_to_the_tokenizer() -> None:
    tokenize = Tokenizer(IDS)
    assert Fragments({"<s>": 1}, IDS, tokenize).tokens("<s>x[INST]") == [1, 1000 + ord("x"), 4]
    assert tokenize.asked == ["x[INST]"]


def test_text_seen_before_is_not_tokenized_again() -> None:
    tokenize = Tokenizer(IDS)
    fragments = Fragments(IDS, IDS, tokenize)
    fragments.tokens("<s>the system prompt[INST]one[INST]")
    again = fragments.tokens("<s>the system prompt[INST]one[INST]two[INST]")
    assert again == Tokenizer(IDS)("<s>the system prompt[INST]one[INST]two[INST]")
    assert tokenize.asked == ["the system prompt", "one", "two"]


def test_a_very_long_text_is_not_kept() -> None:
    tokenize = Tokenizer(IDS)
    fragments = Fragments(IDS, IDS, tokenize)
    text = "x" * (LONGEST_REMEMBERED + 1)
    assert fragments.tokens(text) == fragments.tokens(text)
    assert tokenize.asked == [text, text]


def test_a_vocabulary_without_special_tokens_is_never_cut() -> None:
    tokenize = Tokenizer({})
    assert Fragments({}, {}, tokenize).tokens("<s>") == tokenize("<s>")


@given(
    specials=st.lists(st.text("ab<|>", min_size=1, max_size=5), max_size=6, unique=True),
    text=st.text("abc<|>", max_size=40),
)
def test_the_parts_have_the_tokens_of_the_whole(specials: list[str], text: str) -> None:
    ids = {special: n for n, special in enumerate(specials)}
    assert Fragments(ids, ids, Tokenizer(ids)).tokens(text) == Tokenizer(ids)(text)
