"""Tokenize and detokenize: good bodies, bad bodies, answers."""

from typing import Any

import pytest

from appliance.api.openai.tokenize_request import (
    Detokenize,
    Tokenize,
    detokenize_body,
    parse_detokenize,
    parse_tokenize,
    tokenize_body,
)
from appliance.errors import InvalidRequest
from appliance.protocol import ChatPrompt, Message, TextPart, TextPrompt

HELLO = {"role": "user", "content": "hello"}


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({"prompt": "hi"}, TextPrompt("hi")),
        ({"prompt": ""}, TextPrompt("")),
        ({"prompt": "hi", "messages": None, "add_special_tokens": None}, TextPrompt("hi")),
        ({"prompt": "hi", "add_special_tokens": False}, TextPrompt("hi", add_special=False)),
        ({"messages": [HELLO]}, ChatPrompt((Message("user", (TextPart("hello"),)),))),
        (
            {"messages": [HELLO], "add_special_tokens": False, "chat_template_kwargs": {"a": 1}},
            ChatPrompt((Message("user", (TextPart("hello"),)),), {"a": 1}),
        ),
    ],
)
def test_text_or_messages_can_be_tokenized(fields: dict[str, Any], prompt: TextPrompt | ChatPrompt) -> None:
    assert parse_tokenize({"model": "m", **fields}) == Tokenize("m", prompt, return_token_strs=False)


def test_token_strings_come_when_asked_for() -> None:
    assert parse_tokenize({"model": "m", "prompt": "x", "return_token_strs": True}).return_token_strs
    assert tokenize_body([1, 2], max_model_len=99) == {
        "count": 2,
        "max_model_len": 99,
        "tokens": [1, 2],
        "token_strs": None,
    }
    assert tokenize_body([1], max_model_len=9, token_strs=["a"])["token_strs"] == ["a"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ([], None),
        ({"prompt": "x"}, "model"),
        ({"model": "m"}, "prompt"),
        ({"model": "m", "prompt": None}, "prompt"),
        ({"model": "m", "prompt": ["x"]}, "prompt"),
        ({"model": "m", "prompt": "x", "messages": [HELLO]}, "prompt"),
        ({"model": "m", "prompt": "x", "chat_template_kwargs": {}}, "chat_template_kwargs"),
        ({"model": "m", "messages": []}, "messages"),
        ({"model": "m", "messages": [{"role": "x"}]}, "messages[0].role"),
        ({"model": "m", "messages": [HELLO], "add_special_tokens": True}, "add_special_tokens"),
        ({"model": "m", "prompt": "x", "add_special_tokens": 1}, "add_special_tokens"),
        ({"model": "m", "prompt": "x", "return_token_strs": "yes"}, "return_token_strs"),
        ({"model": "m", "prompt": "x", "promt": 1}, "promt"),
        ({"model": "m", "prompt": "\ud800"}, "prompt"),
    ],
)
def test_what_cannot_be_tokenized_is_refused_by_name(body: Any, param: str | None) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse_tokenize(body)
    assert refusal.value.param == param


def test_tokens_can_be_detokenized() -> None:
    assert parse_detokenize({"model": "m", "tokens": [1, 0]}) == Detokenize("m", (1, 0))
    assert parse_detokenize({"model": "m", "tokens": []}) == Detokenize("m", ())
    assert detokenize_body("hi") == {"prompt": "hi"}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": "m"}, "tokens"),
        ({"model": "m", "tokens": "1"}, "tokens"),
        ({"model": "m", "tokens": [1, -1]}, "tokens[1]"),
        ({"model": "m", "tokens": [True]}, "tokens[0]"),
        ({"model": "m", "tokens": [1.0]}, "tokens[0]"),
        ({"model": "m", "tokens": [2**31]}, "tokens[0]"),
        ({"model": "m", "tokens": ["1"]}, "tokens[0]"),
        ({"model": "m", "tokens": [0] * (2**20 + 1)}, "tokens"),
        ({"model": 1, "tokens": []}, "model"),
        ({"model": "m", "tokens": [], "x": 1}, "x"),
    ],
)
def test_what_cannot_be_detokenized_is_refused_by_name(body: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse_detokenize(body)
    assert refusal.value.param == param
