"""Two requests share an answer only if nothing that has a say in it differs; how it is sent has none."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.api.openai.chat_request import parse_chat
from appliance.protocol import (
    ChatPrompt,
    Constraint,
    Hints,
    ImagePart,
    Message,
    Part,
    Prompt,
    Reasoning,
    Request,
    Sampling,
    Stopping,
    TextPart,
    TextPrompt,
    TokenPrompt,
    Tool,
    ToolCall,
    ToolUse,
)
from cache.canonical import Identity, identify

# Of every kind of field one that is set.
MESSAGES = (
    Message("system", (TextPart("Be brief."),), "owner"),
    Message("user", (TextPart("What is in it?"), ImagePart("https://x.example/a.png", "low"))),
    Message("assistant", (TextPart("I look."),), None, (ToolCall("c1", "look", "{}"),), None, {"reasoning": "Hm."}),
    Message("tool", (TextPart("A cat."),), "look", (), "c1"),
    Message("user", (TextPart("And what "), TextPart("colour?")), "ann"),
)
FULL = Request(
    "r1",
    "auto",
    (ChatPrompt(MESSAGES, {"effort": "low", "deep": {"a": [1, 2]}}, (Tool("look", "Looks.", "{}"),)),),
    sampling=Sampling(0.5, 0.9, 40, 0.1, 0.2, 0.3, 1.1, ((7, 1.5), (9, -100.0)), 42),
    stopping=Stopping(100, 2, ("END", "\n\n")),
    logprobs=3,
    constraint=Constraint("regex", "[a-z]+", "response_format"),
    tool_use=ToolUse("auto", "look"),
    reasoning=Reasoning(budget=50),
    hints=Hints("t1", "chat", "normal", "exact", "any", 9.0),
)
LAST = f"prompts[0].messages[{len(MESSAGES) - 1}].content"
SILENT = (
    "id",
    "stream",
    "include_usage",
    "measure_margin",
    "hints.task",
    "hints.criticality",
    "hints.cache",
    "hints.privacy",
    "hints.timeout_s",
)


def variants(value: Any) -> Iterator[tuple[str, Any]]:  # noqa: C901 - one case for each kind of value
    """The value with one thing changed, for each thing in it, and where that is."""
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            now = getattr(value, field.name)
            for where, other in variants(now):
                yield f".{field.name}{where}", replace(value, **{field.name: other})
            if now is not None and field.default is None:
                yield f".{field.name} is none", replace(value, **{field.name: None})
    elif isinstance(value, tuple | list):
        kind = type(value)
        for i, entry in enumerate(value):
            for where, other in variants(entry):
                yield f"[{i}]{where}", kind([*value[:i], other, *value[i + 1 :]])
            yield f" without [{i}]", kind([*value[:i], *value[i + 1 :]])
            yield f" with [{i}] twice", kind([*value[: i + 1], *value[i:]])
            if i and not isinstance(entry, int):
                yield f" with [{i}] earlier", kind([*value[: i - 1], entry, value[i - 1], *value[i + 1 :]])
    elif isinstance(value, Mapping):
        for name, entry in value.items():
            for where, other in variants(entry):
                yield f"[{name}]{where}", {**value, name: other}
            yield f" without [{name}]", {key: held for key, held in value.items() if key != name}
        yield " and more", {**value, "more": "x"}
    elif isinstance(value, bool):
        yield "", not value
    elif isinstance(value, int | float):
        yield " is more", value + 1
        yield " is 0", type(value)(0)
    elif isinstance(value, str):
        yield " longer", value + "x"
        yield " spaced", value + " "
        yield " in capitals", value.upper() + "X"
    else:
        yield " is set", "x"


VARIANTS = {
    where.removeprefix("."): request
    for where, request in variants(FULL)
    if request.prompts  # there always is one
}


def identity(request: Request, namespace: str = "n", realm: str = "r") -> Identity:
    return identify(request, namespace, realm)


def asked(*texts: str, before: tuple[Message, ...] = ()) -> Request:
    return Request(
        "r",
        "auto",
        (
            ChatPrompt(
                (*before, Message("user", tuple(map(TextPart, texts)))),
            ),
        ),
    )


def prompted(prompt: Prompt) -> Request:
    return Request("r", "auto", (prompt,))


def is_silent(where: str) -> bool:
    return where.startswith(SILENT)


# Each field


def test_every_field_of_a_request_is_tried() -> None:
    assert {where.split("[")[0].split(".")[0].split(" ")[0] for where in VARIANTS} == {
        field.name for field in fields(Request)
    }
    assert len(VARIANTS) > 150


@pytest.mark.parametrize("where", [where for where in VARIANTS if is_silent(where)])
def test_what_has_no_say_in_the_answer_has_none_in_the_identity(where: str) -> None:
    assert identity(VARIANTS[where]) == identity(FULL)


@pytest.mark.parametrize("where", [where for where in VARIANTS if not is_silent(where)])
def test_what_may_change_the_answer_changes_the_key(where: str) -> None:
    assert identity(VARIANTS[where]).key != identity(FULL).key


@pytest.mark.parametrize("where", [where for where in VARIANTS if not is_silent(where)])
def test_only_the_last_user_text_may_differ_within_a_fingerprint(where: str) -> None:
    same = identity(VARIANTS[where]).fingerprint == identity(FULL).fingerprint
    assert same == where.startswith(LAST)


def test_no_two_of_all_these_requests_share_a_key() -> None:
    loud = [request for where, request in VARIANTS.items() if not is_silent(where)]
    assert len({identity(request).key for request in [*loud, FULL]}) == len(loud) + 1


def test_a_step_that_is_said_makes_another_request() -> None:
    one, other, none = (replace(FULL, hints=Hints(step=step)) for step in ("chat", "code", None))
    assert len({identity(request).key for request in (one, other, none)}) == 3
    assert len({identity(request).fingerprint for request in (one, other, none)}) == 3


@pytest.mark.parametrize("kind", ["json_schema", "regex", "lark"])
def test_a_form_makes_another_request(kind: Any) -> None:
    formed = replace(asked("Hi."), constraint=Constraint(kind, "{}", "response_format"))
    others = [
        replace(formed, constraint=Constraint(other, "{}", "response_format"))
        for other in ("json_schema", "regex", "lark")
        if other != kind
    ]
    for other in [*others, asked("Hi.")]:
        assert identity(other).key != identity(formed).key
        assert identity(other).fingerprint != identity(formed).fingerprint


VALUES: list[Any] = [
    True,
    False,
    None,
    0,
    1,
    1.5,
    "",
    "0",
    "1",
    "1.5",
    "true",
    "null",
    [],
    {},
    [[]],
    [0],
    ["0"],
    {"0": 0},
    "[]",
]


def test_values_of_a_template_variable_are_told_apart_by_their_kind_too() -> None:
    requests = [prompted(ChatPrompt((Message("user", (TextPart("Hi."),)),), {"a": value})) for value in VALUES]
    assert len({identity(request).key for request in requests}) == len(VALUES)
    assert len({identity(request).fingerprint for request in requests}) == len(VALUES)


def test_the_order_in_which_variables_were_written_is_nobody_s_wish() -> None:
    message = (Message("user", (TextPart("Hi."),)),)
    one = prompted(ChatPrompt(message, {"a": 1, "b": {"c": 2, "d": 3}}))
    other = prompted(ChatPrompt(message, {"b": {"d": 3, "c": 2}, "a": 1}))
    assert identity(one) == identity(other)


# Texts

texts = st.text(max_size=30)


@given(one=texts, other=texts)
def test_the_last_text_makes_the_key_and_not_the_fingerprint(one: str, other: str) -> None:
    first, second = identity(asked(one)), identity(asked(other))
    assert (first.key == second.key) == (one == other)
    assert first.fingerprint == second.fingerprint
    assert (first.text, second.text) == (one, other)


@given(one=texts, other=texts, text=texts)
def test_an_earlier_text_makes_both(one: str, other: str, text: str) -> None:
    first, second = (identity(asked(text, before=(Message("system", (TextPart(said),)),))) for said in (one, other))
    assert (first.key == second.key) == (one == other)
    assert (first.fingerprint == second.fingerprint) == (one == other)


@given(text=st.text(min_size=2, max_size=30), data=st.data())
def test_a_text_that_is_cut_elsewhere_between_two_messages_is_another(text: str, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(text)), min_size=2, max_size=2, unique=True))
    first, second = (identity(asked(text[cut:], before=(Message("system", (TextPart(text[:cut]),)),))) for cut in cuts)
    assert first.key != second.key
    assert first.fingerprint != second.fingerprint


@given(st.lists(texts, min_size=1, max_size=4))
def test_a_text_in_several_parts_is_read_as_one(parts: list[str]) -> None:
    found = identity(asked(*parts))
    assert found.text == "".join(parts)
    assert found.fingerprint == identity(asked("")).fingerprint


def test_a_user_that_says_nothing_says_an_empty_text() -> None:
    assert identity(asked()).text == ""
    assert identity(asked()).fingerprint == identity(asked("x")).fingerprint
    assert identity(asked()).key != identity(asked("x")).key


ODD = [
    "\ud83d",
    "\ude00",
    "\ude00\ud83d",
    "?",
    "\ufffd",
    "\\ud83d",
    "\\\\ud83d",
    "\U0001f600",
    "\0",
    "",
    '"',
    "\\",
    "e\u0301",
    "\u00e9",
    "\u200b",
    " ",
    "\u00a0",
    "\r\n",
    "\n",
]


def test_half_surrogates_and_other_odd_characters_are_told_apart() -> None:
    assert len({identity(asked(f"a{odd}b")).key for odd in ODD}) == len(ODD)
    for odd in ODD:
        assert identity(asked(odd)).text == odd
        assert identity(asked(odd, before=(Message("user", (TextPart(odd),), odd),)), odd, odd).text == odd


@pytest.mark.parametrize("text", ODD)
def test_an_odd_character_in_any_text_field_makes_an_identity(text: str) -> None:
    request = replace(
        prompted(ChatPrompt((Message("user", (TextPart(text),), text, attributes={text: text}),), {text: text})),
        model=text,
        stopping=Stopping(stop=(text,)),
        constraint=Constraint("regex", text, text),
    )
    assert len(identity(request, text, text).key) == 32


@pytest.mark.parametrize("said", ["Hi.", "hi.", "Hi", " Hi.", "Hi. ", "HI.", "Hi.\n"])
def test_no_text_is_tidied(said: str) -> None:
    assert (identity(asked(said)).key == identity(asked("Hi.")).key) == (said == "Hi.")
    assert identity(asked(said)).text == said


# Whose, and who answers


@given(one=st.tuples(texts, texts), other=st.tuples(texts, texts))
def test_namespaces_and_realms_never_meet(one: tuple[str, str], other: tuple[str, str]) -> None:
    first, second = identity(asked("Hi."), *one), identity(asked("Hi."), *other)
    assert (first.key == second.key) == (one == other)
    assert (first.fingerprint == second.fingerprint) == (one == other)
    assert (first.namespace, second.namespace) == (one[0], other[0])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "c"), ("a", "bc")),
        (("a", "b"), ("b", "a")),
        (("", "a"), ("a", "")),
        (("a\0", "b"), ("a", "\0b")),
        (('a","realm":"b', "c"), ("a", 'b","step":null,"c')),
    ],
)
def test_a_namespace_does_not_run_into_a_realm(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert identity(asked("Hi."), *one).key != identity(asked("Hi."), *other).key


# Prompts

HI = Message("user", (TextPart("Hi."),))
TEXTLESS: dict[str, Prompt] = {
    "a text": TextPrompt("Hi."),
    "another text": TextPrompt("Hi!"),
    "a text without BOS": TextPrompt("Hi.", add_special=False),
    "tokens": TokenPrompt((1, 2)),
    "other tokens": TokenPrompt((12,)),
    "no tokens": TokenPrompt(()),
    "no message": ChatPrompt(()),
    "an answer that is begun": ChatPrompt((HI, Message("assistant", (TextPart("Hi."),)))),
    "another answer that is begun": ChatPrompt((HI, Message("assistant", (TextPart("Ho."),)))),
    "a result": ChatPrompt((HI, Message("tool", (TextPart("Hi."),), None, (), "c"))),
    "instructions only": ChatPrompt((Message("system", (TextPart("Hi."),)),)),
    "an image": ChatPrompt((Message("user", (TextPart("Hi."), ImagePart("https://x.example/a.png"))),)),
    "another image": ChatPrompt((Message("user", (TextPart("Hi."), ImagePart("https://x.example/b.png"))),)),
    "the image first": ChatPrompt((Message("user", (ImagePart("https://x.example/a.png"), TextPart("Hi."))),)),
    "an image alone": ChatPrompt((Message("user", (ImagePart("https://x.example/a.png"),)),)),
    "an image and more": ChatPrompt((Message("user", (TextPart("Hi!"), ImagePart("https://x.example/a.png"))),)),
}


@pytest.mark.parametrize("what", TEXTLESS)
def test_a_prompt_that_ends_in_no_user_s_text_has_none(what: str) -> None:
    assert identity(prompted(TEXTLESS[what])).text == ""


def test_such_prompts_share_nothing_with_each_other_nor_with_a_user_s_text() -> None:
    found = [identity(prompted(prompt)) for prompt in (*TEXTLESS.values(), ChatPrompt((HI,)))]
    assert len({each.key for each in found}) == len(found)
    assert len({each.fingerprint for each in found}) == len(found)


def test_several_prompts_have_no_text_and_are_told_apart() -> None:
    lists: list[tuple[Prompt, ...]] = [
        (TextPrompt("a"), TextPrompt("b")),
        (TextPrompt("b"), TextPrompt("a")),
        (TextPrompt("ab"),),
        (ChatPrompt((HI,)), ChatPrompt((HI,))),
        (ChatPrompt((HI,)),),
    ]
    found = [identity(Request("r", "auto", prompts)) for prompts in lists]
    assert [each.text for each in found] == ["", "", "", "", "Hi."]
    assert len({each.fingerprint for each in found}) == len(found)


@pytest.mark.parametrize(
    ("before", "single"),
    [
        ((), True),
        (("system",), True),
        (("developer",), True),
        (("system", "developer", "system"), True),
        (("user",), False),
        (("system", "user"), False),
        (("assistant",), False),
        (("tool",), False),
        (("user", "assistant"), False),
        (("user", "system"), False),
    ],
)
def test_a_turn_is_a_single_one_where_nothing_but_instructions_comes_before(
    before: tuple[Any, ...], *, single: bool
) -> None:
    assert identity(asked("Hi.", before=tuple(Message(role) for role in before))).single_turn is single


def test_no_turn_is_a_single_one_without_a_conversation() -> None:
    assert not identity(prompted(TextPrompt("Hi."))).single_turn
    assert not identity(prompted(TokenPrompt((1,)))).single_turn


# As clients write it

BODY = {"model": "auto", "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 9, "temperature": 0}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": PARAMETERS}}]
FORM = {"type": "json_schema", "json_schema": {"name": "f", "schema": PARAMETERS}}


def posted(headers: Mapping[str, str] | None = None, request_id: str = "r", **more: Any) -> Identity:
    return identity(parse_chat({**BODY, **more}, headers or {}, request_id))


@pytest.mark.parametrize(
    "more",
    [
        {"stream": True},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"user": "ann"},
        {"n": 1},
        {
            "metadata": {
                "task": "t",
                "privacy": "local-only",
                "cache": "refresh",
                "criticality": "critical",
                "timeout_s": "5",
            }
        },
        {"service_tier": "flex"},
        {"tools": TOOLS, "tool_choice": "none"},
        {"top_p": 1},
        {"temperature": 0.0},
        {"stop": None},
        {"tools": []},
        {"logprobs": False},
        {"max_tokens": None, "max_completion_tokens": 9},
        {"messages": [{"role": "user", "content": "Hi.", "name": None}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi."}]}]},
    ],
    ids=str,
)
def test_the_same_request_written_another_way_is_the_same(more: dict[str, Any]) -> None:
    assert posted(**more) == posted()


def test_the_same_request_of_another_time_is_the_same() -> None:
    assert posted({"x-appliance-task": "t", "x-appliance-timeout": "5"}, "another") == posted()
    assert posted({"x-appliance-step": "chat"}) == posted(metadata={"step": "chat"}) != posted()


@pytest.mark.parametrize(
    "more",
    [
        {"model": "local"},
        {"max_tokens": 10},
        {"temperature": 0.1},
        {"seed": 1},
        {"seed": 0},
        {"top_p": 0.5},
        {"stop": "x"},
        {"n": 2},
        {"logprobs": True},
        {"logit_bias": {"5": 1}},
        {"presence_penalty": 1},
        {"frequency_penalty": 1},
        {"reasoning_effort": "none"},
        {"reasoning_effort": "low"},
        {"thinking_token_budget": 5},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"chat_template_kwargs": {"x": 1}},
        {"response_format": FORM},
        {"response_format": {"type": "json_object"}},
        {"tools": TOOLS},
        {"tools": TOOLS, "tool_choice": "required"},
        {"messages": [{"role": "user", "content": "Hi.", "name": "ann"}]},
        {"messages": [{"role": "system", "content": "Hi."}, {"role": "user", "content": "Hi."}]},
        {"messages": [{"role": "developer", "content": "Hi."}, {"role": "user", "content": "Hi."}]},
    ],
    ids=str,
)
def test_what_a_client_asks_otherwise_is_another_request_and_of_another_kind(more: dict[str, Any]) -> None:
    assert posted(**more).key != posted().key
    assert posted(**more).fingerprint != posted().fingerprint


PROGRAM = """
from appliance.protocol import *
from cache.canonical import identify
message = Message("user", (TextPart("Hi."),), attributes={"b": "1", "a": "2"})
prompt = ChatPrompt((message,), {"z": 1, "y": {"b": 1, "a": 2}})
print(identify(Request("r", "auto", (prompt,)), "n", "r").key.hex())
"""


def test_a_key_outlives_the_process_that_made_it() -> None:
    keys = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[2],
        ).stdout
        for seed in ("1", "2")
    }
    assert len(keys) == 1
    assert len(keys.pop().strip()) == 64


@pytest.mark.parametrize("part", [TextPart("x"), ImagePart("https://x.example/a.png")])
def test_a_digest_is_of_32_bytes_whatever_it_is_of(part: Part) -> None:
    found = identity(prompted(ChatPrompt((Message("user", (part,) * 50),))))
    assert (len(found.key), len(found.fingerprint)) == (32, 32)
