"""Each family's chat template, written in its manner, is told tools its own way and writes calls as they are read.

The form in which earlier calls stand in the prompt is the one that the grammar holds the next ones to.
"""

from datetime import UTC, datetime

import pytest

from appliance.protocol import ChatPrompt, Message, TextPart, Tool, ToolCall
from runtimes.dialects import Dialect, ReasoningMarks, dialect_of
from runtimes.dialects.tool_prompting import way_of, with_tools
from runtimes.templates.chat_template import ChatTemplate
from tests.contract.family_templates import FAMILIES, QWEN, SMOLLM2

TOOLS = (
    Tool("look_around", "Looks.", '{"type":"object","properties":{"where":{"type":"string"}}}'),
    Tool("go", "", '{"type":"object","properties":{}}'),
)


def compiled(source: str) -> ChatTemplate:
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    return ChatTemplate(source, special, (), output_limit_bytes=2**20, now=lambda: datetime(2026, 3, 5, tzinfo=UTC))


def rendered(family: str, *messages: Message) -> str:
    source = FAMILIES[family][0]
    template, form = compiled(source), dialect_of(source).calls

    def text(prompt: ChatPrompt) -> str:
        return template.render(prompt, add_generation_prompt=True).text

    return text(with_tools(ChatPrompt(messages, tools=TOOLS), way_of(text, form), form))


def say(text: str) -> Message:
    return Message("user", (TextPart(text),))


@pytest.mark.parametrize("family", FAMILIES)
def test_tools_are_told_in_the_familys_own_way(family: str) -> None:
    source, form, way = FAMILIES[family]
    template, dialect = compiled(source), dialect_of(source)
    assert dialect.calls.name == form
    assert way_of(lambda prompt: template.render(prompt, add_generation_prompt=True).text, dialect.calls) == way
    text = rendered(family, say("go on"))
    assert all(part in text for part in ("look_around", "where", "go on"))
    assert rendered(family, Message("system", (TextPart("be terse"),)), say("go on")).count("be terse") == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_earlier_calls_stand_in_the_form_that_the_next_are_held_to(family: str) -> None:
    form = dialect_of(FAMILIES[family][0]).calls
    call = ToolCall("call_1", "look_around", '{"where": "here"}')
    result = Message("tool", (TextPart("a wall"),), tool_call_id="call_1")
    text = rendered(family, say("first"), Message("assistant", tool_calls=(call,)), result, say("second"))
    name = f'"{call.name}"' if form.name_is_json else call.name
    assert form.opening + name + form.before_arguments + call.arguments + form.closing + form.end in text
    assert all(part in text for part in ("first", "a wall", "second"))


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - {"llama3", "gpt-oss"}))  # these take one call at a time
def test_calls_side_by_side_stand_so_too(family: str) -> None:
    form = dialect_of(FAMILIES[family][0]).calls
    calls = (ToolCall("c1", "look_around", '{"where": "here"}'), ToolCall("c2", "go", "{}"))
    results = [Message("tool", (TextPart("done"),), tool_call_id=call.id) for call in calls]
    text = rendered(family, say("first"), Message("assistant", tool_calls=calls), *results)
    names = [f'"{call.name}"' if form.name_is_json else call.name for call in calls]
    written = [
        name + form.before_arguments + call.arguments + form.closing for name, call in zip(names, calls, strict=True)
    ]
    assert form.opening + (form.between or "").join(written) + form.end in text


def test_thoughts_go_back_to_templates_that_show_them() -> None:
    thoughtful = Message("assistant", (TextPart("5"),), attributes={"reasoning_content": "2 + 3"})
    text = compiled(QWEN).render(ChatPrompt((say("q"), thoughtful)), add_generation_prompt=False).text
    assert "<think>2 + 3</think>5" in text
    others = compiled(SMOLLM2).render(ChatPrompt((say("q"), thoughtful)), add_generation_prompt=False)
    assert (others.form, "2 + 3" in others.text) == ("as-given", False)


def test_which_families_think_aloud() -> None:
    marks = {name: dialect_of(source).reasoning for name, (source, _, _) in FAMILIES.items()}
    thinking = {name for name, found in marks.items() if found is not None}
    assert thinking == {"qwen", "smollm3", "deepseek-r1", "gpt-oss"}
    assert marks["qwen"] == ReasoningMarks("<think>", "</think>")
    assert dialect_of("{{ '[THINK]' }}[/THINK]").reasoning == ReasoningMarks("[THINK]", "[/THINK]")
    assert dialect_of(None) == Dialect()
