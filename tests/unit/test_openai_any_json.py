"""No JSON whatever makes the parsers raise anything but a 400, or give a request that cannot be carried on."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.api import sse
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
MESSAGES = [{"role": "user", "content": "x"}]
CHANGES = st.dictionaries(
    st.sampled_from(NAMES) | st.text(max_size=8),
    st.sampled_from([None, 0, 1, True, "x", "1", [], ["x"], {}])
    | JSON
    | NEARLY_MESSAGES
    | st.dictionaries(st.sampled_from([*MEMBERS, "1", "2"]), SCALARS, max_size=3),
    max_size=2,
)
PARSERS: list[tuple[Callable[[object], Any], dict[str, Any]]] = [
    (lambda body: parse_chat(body, {}, "r1"), {"model": "m", "messages": MESSAGES}),
    (lambda body: parse_completion(body, {}, "r1"), {"model": "m", "prompt": "x"}),
    (parse_tokenize, {"model": "m", "messages": MESSAGES}),
    (parse_detokenize, {"model": "m", "tokens": [1]}),
]


def carries_on_or_is_refused(parse: Callable[[object], Any], body: object) -> None:
    try:
        request = parse(body)
    except InvalidRequest as refusal:
        sse.error(refusal)  # the client's wire: UTF-8
    else:
        msgpack.packb(asdict(request))  # the worker's wire: UTF-8, 64-bit integers


@given(body=JSON)
@pytest.mark.parametrize(("parse", "good"), PARSERS)
def test_any_json(parse: Callable[[object], Any], good: dict[str, Any], body: object) -> None:
    carries_on_or_is_refused(parse, body)


@given(changes=CHANGES)
@pytest.mark.parametrize(("parse", "good"), PARSERS)
def test_a_good_body_with_anything_in_its_fields(
    parse: Callable[[object], Any], good: dict[str, Any], changes: dict[str, Any]
) -> None:
    carries_on_or_is_refused(parse, {**good, **changes})


@given(content=st.text(), name=st.text(), variables=st.dictionaries(st.sampled_from(["a", "b"]), JSON))
def test_a_chat_of_any_text(content: str, name: str, variables: dict[str, Any]) -> None:
    message = {"role": "user", "content": content, **({"name": name} if name else {})}
    body = {"model": "m", "messages": [message], "chat_template_kwargs": variables}
    carries_on_or_is_refused(lambda it: parse_chat(it, {}, "r1"), body)


@given(headers=st.dictionaries(st.sampled_from(["step", "task", "timeout", "privacy", "cache"]), st.text(), min_size=1))
def test_any_hint_header(headers: dict[str, str]) -> None:
    body = {"model": "m", "messages": MESSAGES}
    named = {f"x-appliance-{name}": value for name, value in headers.items()}
    carries_on_or_is_refused(lambda it: parse_chat(it, named, "r1"), body)


def test_nesting_as_deep_as_a_decoder_gives_is_no_trouble() -> None:
    deep: Any = "x"
    for _ in range(50_000):
        deep = [deep]
    for field in ("chat_template_kwargs", "prediction", "messages", "stop", "metadata", "tools"):
        value = {"x": deep} if field == "chat_template_kwargs" else deep
        body = {"model": "m", "messages": MESSAGES, field: value}
        with suppress(InvalidRequest):
            parse_chat(body, {}, "r1")
