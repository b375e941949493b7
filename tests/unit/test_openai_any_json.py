"""No JSON whatever makes the parsers raise anything but a 400, or give a request that cannot be carried on."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.api.openai.chat_request import ChatCompletionRequest, parse_chat
from appliance.api.openai.completion_request import CompletionRequest, parse_completion
from appliance.api.openai.tokenize_request import TokenizeRequest, parse_detokenize, parse_tokenize
from appliance.errors import InvalidRequest

# What json.loads can give: half surrogate pairs, integers of any size, and infinities (it reads 1e999 as one).
SCALARS = st.none() | st.booleans() | st.integers() | st.sampled_from([10**400, -(10**30)]) | st.floats() | st.text()
JSON = st.recursive(
    SCALARS | st.text(st.characters(categories=["Cs"]), min_size=1, max_size=2),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = sorted({*ChatCompletionRequest.model_fields, *CompletionRequest.model_fields, *TokenizeRequest.model_fields})
MEMBERS = ["role", "content", "type", "text", "name", "tool_calls", "tool_call_id", "refusal", "function", "arguments"]
ROLES = ["system", "developer", "user", "assistant", "tool", "function", "text", "refusal", "image_url"]
NEARLY_MESSAGES = st.lists(
    st.dictionaries(
        st.sampled_from(MEMBERS),
        st.sampled_from(ROLES)
        | JSON
        | st.lists(st.dictionaries(st.sampled_from(MEMBERS), st.sampled_from(ROLES) | JSON, max_size=4), max_size=3),
        max_size=5,
    ),
    max_size=3,
)
NEARLY_BODIES = st.builds(
    lambda good, bad: {**good, **bad},
    st.fixed_dictionaries(
        {},
        optional={
            "model": st.just("m"),
            "messages": st.just([{"role": "user", "content": "x"}]) | NEARLY_MESSAGES,
            "prompt": st.just("x") | st.lists(st.integers(0, 9)),
            "tokens": st.lists(st.integers(0, 9)),
        },
    ),
    st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=8), JSON | NEARLY_MESSAGES, max_size=3),
)
PARSERS: list[Callable[[object], Any]] = [
    lambda body: parse_chat(body, {}, "r1"),
    lambda body: parse_completion(body, {}, "r1"),
    parse_tokenize,
    parse_detokenize,
]


def carries_on_or_is_refused(parse: Callable[[object], Any], body: object) -> None:
    try:
        request = parse(body)
    except InvalidRequest as refusal:
        (refusal.message + str(refusal.param)).encode()
        assert len(refusal.message) < 600
    else:
        msgpack.packb(asdict(request))  # the worker's wire: UTF-8, 64-bit integers


@given(body=JSON)
@pytest.mark.parametrize("parse", PARSERS)
def test_any_json(parse: Callable[[object], Any], body: object) -> None:
    carries_on_or_is_refused(parse, body)


@given(body=NEARLY_BODIES)
@pytest.mark.parametrize("parse", PARSERS)
def test_bodies_that_are_nearly_right(parse: Callable[[object], Any], body: object) -> None:
    carries_on_or_is_refused(parse, body)


@given(headers=st.dictionaries(st.sampled_from(["step", "task", "timeout", "privacy", "cache"]), st.text(), min_size=1))
def test_any_hint_header(headers: dict[str, str]) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    named = {f"x-appliance-{name}": value for name, value in headers.items()}
    carries_on_or_is_refused(lambda it: parse_chat(it, named, "r1"), body)


def test_nesting_as_deep_as_a_decoder_gives_is_no_trouble() -> None:
    deep: Any = "x"
    for _ in range(50_000):
        deep = [deep]
    for field in ("chat_template_kwargs", "prediction", "messages", "stop", "metadata", "tools"):
        value = {"x": deep} if field == "chat_template_kwargs" else deep
        body = {"model": "m", "messages": [{"role": "user", "content": "x"}], field: value}
        try:
            parse_chat(body, {}, "r1")
        except InvalidRequest as refusal:
            assert (refusal.param or "").startswith(field)
