"""A real model that speaks as each family does: its weights, with the family's template and marks in its vocabulary.

It has not learnt those marks, so what it writes is poor; but whatever it writes must be read for what it is.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import openai
import pytest

from runtimes.dialects import dialect_of
from tests.contract.family_templates import FAMILIES
from tests.integration.daemon_fixture import Daemon
from tests.integration.daemon_gguf import rewrite

# Control tokens that SmolLM2's vocabulary has for source code, and nobody needs here.
SPARE = ("<repo_name>", "<file_sep>", "<filename>", "<gh_stars>", "<issue_start>", "<issue_comment>", "<issue_closed>",
         "<jupyter_start>", "<jupyter_text>", "<jupyter_code>", "<jupyter_output>", "<jupyter_script>",
         "<empty_output>")  # fmt: skip
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
NOW: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
SCHEMAS = {"get_weather": WEATHER, "now": NOW}
TOOLS: Any = [{"type": "function", "function": {"name": n, "parameters": s}} for n, s in SCHEMAS.items()]
ASKED: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
HISTORY: Any = [
    *ASKED,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "12 C, rain"},
    {"role": "user", "content": "And in Rome?"},
]


@pytest.fixture(scope="module", params=sorted(FAMILIES.keys() - {"smollm3", "gemma", "smollm2"}))  # as qwen, and none
def family(
    request: pytest.FixtureRequest, model_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Daemon]]:
    scratch = tmp_path_factory.mktemp("family")
    template = FAMILIES[request.param][0]
    dialect = dialect_of(template)
    marks = [*dialect.calls.marks]
    if dialect.reasoning is not None and not dialect.calls.speaks:
        marks += [dialect.reasoning.opening, dialect.reasoning.closing]
    renamed = dict(zip(SPARE, marks, strict=False))
    model = rewrite(model_path, scratch / "family.gguf", {"tokenizer.chat_template": template}, renamed)
    daemon = Daemon(model, scratch / "state", scratch, {})
    try:
        yield request.param, daemon.wait_ready()
    finally:
        daemon.close()


@pytest.fixture
def client(family: tuple[str, Daemon]) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{family[1].url}/v1", api_key="none", max_retries=0) as client:
        yield client


def check(calls: dict[int, tuple[str, str, str]], reason: str) -> None:
    """(id, name, arguments) of each call by index."""
    assert list(calls) == list(range(len(calls)))
    assert len({call_id for call_id, _, _ in calls.values()}) == len(calls)
    for index, (_, name, arguments) in calls.items():
        if reason == "tool_calls" or index < len(calls) - 1:
            jsonschema_rs.validate(SCHEMAS[name], json.loads(arguments))


def plain(client: openai.OpenAI, **fields: Any) -> tuple[str, dict[int, tuple[str, str, str]], str]:
    answer = client.chat.completions.create(model="auto", **{"messages": ASKED, **fields})
    choice = answer.choices[0]
    calls = {
        i: (call.id, call.function.name, call.function.arguments)
        for i, call in enumerate(choice.message.tool_calls or [])
        if call.type == "function"
    }
    return choice.message.content or "", calls, choice.finish_reason


def streamed(client: openai.OpenAI, **fields: Any) -> tuple[str, dict[int, tuple[str, str, str]], str]:
    text, reason, calls = "", "", dict[int, tuple[str, str, str]]()
    for chunk in client.chat.completions.create(model="auto", stream=True, **{"messages": ASKED, **fields}):
        choice = chunk.choices[0]
        text += choice.delta.content or ""
        reason = choice.finish_reason or reason
        for piece in choice.delta.tool_calls or []:
            function = piece.function
            assert function is not None
            call_id, name, arguments = calls.get(piece.index, (piece.id or "", function.name or "", ""))
            calls[piece.index] = call_id, name, arguments + (function.arguments or "")
    return text, calls, reason


def test_calls_that_must_come_come_streamed_or_not(client: openai.OpenAI) -> None:
    fields = {"tools": TOOLS, "tool_choice": "required", "reasoning_effort": "none", "max_tokens": 60}
    for text, calls, reason in plain(client, **fields), streamed(client, messages=HISTORY, **fields):
        assert calls
        assert text == ""
        check(calls, reason)


def test_a_free_answer_shows_none_of_the_familys_marks(client: openai.OpenAI, family: tuple[str, Daemon]) -> None:
    dialect = dialect_of(FAMILIES[family[0]][0])
    for fields in ({"tools": TOOLS}, {}):
        text, calls, reason = streamed(client, max_tokens=40, reasoning_effort="none", **fields)
        check(calls, reason)
        assert not any(mark in text for mark in (*dialect.calls.marks, *dialect.unsaid))


def test_an_answer_has_its_form(client: openai.OpenAI) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "weather", "schema": WEATHER}}
    text, _, reason = plain(client, response_format=form, max_tokens=80, extra_body={"thinking_token_budget": 0})
    assert reason == "stop"
    jsonschema_rs.validate(WEATHER, json.loads(text))


def test_thoughts_are_told_bounded_and_switched_off(client: openai.OpenAI, family: tuple[str, Daemon]) -> None:
    if family[0] != "deepseek-r1":  # only this template begins the thoughts; the model itself never would
        answer = client.chat.completions.create(model="auto", messages=ASKED, max_tokens=4, temperature=0)
        assert "reasoning_content" not in (answer.choices[0].message.model_extra or {})
        return
    form: Any = {"type": "json_schema", "json_schema": {"name": "weather", "schema": WEATHER}}
    bounded = client.chat.completions.create(
        model="auto",
        messages=ASKED,
        response_format=form,
        max_tokens=120,
        temperature=0,
        extra_body={"thinking_token_budget": 10, "min_tokens": 15},  # the model does not end inside its thoughts
    )
    message, usage = bounded.choices[0].message, bounded.usage
    jsonschema_rs.validate(WEATHER, json.loads(message.content or ""))
    assert (message.model_extra or {})["reasoning_content"].strip()
    assert usage is not None
    assert usage.completion_tokens_details is not None
    assert 10 <= (usage.completion_tokens_details.reasoning_tokens or 0) <= 14  # and how they are ended
    fields: dict[str, Any] = {"max_tokens": 20, "temperature": 0, "extra_body": {"min_tokens": 20}}
    off = client.chat.completions.create(model="auto", messages=ASKED, reasoning_effort="none", **fields)
    assert "reasoning_content" not in (off.choices[0].message.model_extra or {})
    assert off.choices[0].message.content
    endless = client.chat.completions.create(model="auto", messages=ASKED, **fields)
    assert endless.choices[0].finish_reason == "length"
    assert (endless.choices[0].message.model_extra or {})["reasoning_content"]
    assert not endless.choices[0].message.content


def test_a_budget_that_cannot_be_counted_is_refused(client: openai.OpenAI, family: tuple[str, Daemon]) -> None:
    fields: dict[str, Any] = {"model": "auto", "messages": ASKED, "max_tokens": 4}
    if family[0] == "gpt-oss":
        with pytest.raises(openai.BadRequestError, match="thinking_token_budget"):
            client.chat.completions.create(**fields, extra_body={"thinking_token_budget": 5})
    else:
        client.chat.completions.create(**fields, extra_body={"thinking_token_budget": 5})
