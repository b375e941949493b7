"""A conversation is put to a template in the gentlest form it takes, and refused by name when it takes none."""

from datetime import UTC, datetime
from typing import Any

import pytest

from appliance.protocol import ChatPrompt, ImagePart, Message, Role, TextPart, ToolCall
from runtimes.dialects.call_forms import NEUTRAL
from runtimes.templates.chat_template import ChatTemplate
from runtimes.templates.neutral import CHATML, PLAIN, neutral_template
from runtimes.templates.normalize import Arguments, Form, forms
from runtimes.templates.provenance import plain
from runtimes.templates.result import Rendered, TemplateError
from runtimes.templates.turns import conversation, parsed_arguments

LIMIT_BYTES = 2**20
IMAGE = ImagePart("data:")
LINES = "{% for m in messages %}{{ m.role ~ ': ' ~ m.content ~ '\n' }}{% endfor %}"
NO_SYSTEM = "{% for m in messages if m.role != 'system' %}{{ m.role ~ ': ' ~ m.content ~ '\n' }}{% endfor %}"
STRICT = """\
{% for m in messages %}{% if m.role != ['user', 'assistant'][loop.index0 % 2] %}{{ raise_exception('alternate!') }}\
{% endif %}{{ m.role ~ ': ' ~ m.content ~ '\n' }}{% endfor %}"""


def say(role: Role, *texts: str, **rest: Any) -> Message:
    return Message(role, tuple(map(TextPart, texts)), **rest)


def compiled(source: str) -> ChatTemplate:
    special = {"bos_token": "<s>"}
    return ChatTemplate(
        source, special, (), output_limit_bytes=LIMIT_BYTES, now=lambda: datetime(2026, 3, 5, tzinfo=UTC)
    )


def render(source: str, *messages: Message, **template_kwargs: Any) -> Rendered:
    return compiled(source).render(ChatPrompt(messages, template_kwargs), add_generation_prompt=True)


def forms_of(*messages: Message, knows_developer: bool = False) -> list[Form]:
    return list(forms(conversation(messages).turns, knows_developer=knows_developer, call_form=NEUTRAL))


LATE_SYSTEM = (say("user", "q1"), say("assistant", "a1"), say("system", "be terse"), say("user", "q2"))
TOOLS = (
    say("user", "q"),
    say("assistant", "let me look", tool_calls=(ToolCall("c1", "weather", '{"city": "Brno"}'),)),
    say("tool", "sunny", tool_call_id="c1"),
)


def test_a_late_system_message_stays_in_its_place_as_user_text() -> None:
    assert render(STRICT, *LATE_SYSTEM).text == "user: q1\nassistant: a1\nuser: be terse\n\nq2\n"


def test_a_system_message_at_the_end_joins_the_question_before_it() -> None:
    assert render(STRICT, say("user", "q"), say("system", "in French")).text == "user: q\n\nin French\n"


def test_leading_system_and_developer_messages_become_one() -> None:
    source = "{{ messages[0].content }}|{% for m in messages[1:] if m.role == 'user' %}{{ m.content }}{% endfor %}"
    assert render(source, say("system", "one"), say("developer", "two"), say("user", "q")).text == "one\n\ntwo|q"


def test_a_system_message_joins_the_first_user_turn_where_the_template_drops_it() -> None:
    rendered = render(NO_SYSTEM, say("system", "be terse"), say("user", "q"))
    assert (rendered.text, rendered.form) == ("user: be terse\n\nq\n", "system-in-user")


def test_an_assistant_that_speaks_first_follows_an_empty_user_turn() -> None:
    rendered = render(STRICT, say("assistant", "welcome"), say("user", "q"))
    assert rendered.text == "user: \nassistant: welcome\nuser: q\n"


def test_text_parts_are_joined_by_line_breaks_as_other_servers_do() -> None:
    assert render(LINES, say("user", "one", "two")).text == "user: one\ntwo\n"


def test_tools_become_text_where_the_template_knows_none() -> None:
    rendered = render(STRICT, *TOOLS)
    assert rendered.form == "tools-as-text"
    assert rendered.text == (
        'user: q\nassistant: let me look\n<tool_call>\n{"name": "weather", "arguments": {"city": "Brno"}}\n'
        "</tool_call>\n"
        "user: <tool_response>\nsunny\n</tool_response>\n"
    )


def test_a_developer_is_a_system_message_unless_the_template_tells_them_apart() -> None:
    talk = (say("developer", "be terse"), say("user", "q"))
    assert render(LINES, *talk).text == "system: be terse\nuser: q\n"
    assert render("{# developer #}" + LINES, *talk).text == "developer: be terse\nuser: q\n"


def test_arguments_are_an_object_that_prints_as_the_json_it_came_in() -> None:
    source = (
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}"
        "{{ c.function.arguments }}{{ c.function.arguments.city }}{% endfor %}{% endfor %}"
    )
    call = ToolCall("c1", "weather", '{ "city":"Brno" }')
    assert render(source, say("assistant", tool_calls=(call,))).text == 'weather{ "city":"Brno" }Brno'


def test_arguments_are_a_string_where_the_template_adds_them_to_one() -> None:
    source = (
        "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.name + c.function.arguments }}"
        "{% endfor %}{% endfor %}"
    )
    rendered = render(source, say("assistant", tool_calls=(ToolCall("c1", "f", '{"a": 1}'),)))
    assert (rendered.text, rendered.form) == ('f{"a": 1}', "string-arguments")


@pytest.mark.parametrize("text", ["", "{", "[1]", '"a"', "null", '{"a": 1, "a": 2}', '{"a": NaN}', '{"a": 1e999}',
                                  "[" * 100_000, '{"a": ' * 100_000])  # fmt: skip
def test_arguments_that_would_not_survive_parsing_stay_text(text: str) -> None:
    assert parsed_arguments(text) is None


def test_what_a_tool_is_called_is_found_by_the_id_of_its_call() -> None:
    source = (
        "{% for m in messages %}{{ m.name }}{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}"
        "{{ c.function.arguments }}{% endfor %};{% endfor %}"
    )
    assert render(source, *TOOLS).text == 'q;let me lookweather{"city": "Brno"};weathersunny;'


def test_short_call_ids_still_match_their_results() -> None:
    short = next(form for form in forms_of(*TOOLS) if form.name == "short-call-ids")
    call_id = short.messages[1]["tool_calls"][0]["id"]
    assert len(call_id) == 9
    assert call_id.isalnum()
    assert short.messages[2]["tool_call_id"] == call_id


def test_the_first_form_is_the_conversation_itself() -> None:
    first = forms_of(*TOOLS)[0]
    assert first.name == "as-given"
    assert first.messages == [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": "let me look",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Brno"}}}
            ],
        },
        {"role": "tool", "content": "sunny", "name": "weather", "tool_call_id": "c1"},
    ]
    assert isinstance(first.messages[1]["tool_calls"][0]["function"]["arguments"], Arguments)


def test_no_form_is_tried_twice() -> None:
    assert [form.name for form in forms_of(say("user", "q"))] == ["as-given", "text-parts"]
    made = forms_of(*TOOLS, *LATE_SYSTEM, say("developer", "x"), knows_developer=True)
    assert all(a.messages != b.messages for i, a in enumerate(made) for b in made[:i])
    assert len({form.name for form in made}) == len(made)


def test_merged_messages_remember_where_they_came_from() -> None:
    merged = next(form for form in forms_of(*LATE_SYSTEM) if form.name == "merged-users")
    assert merged.origins == [(0,), (1,), (2, 3)]


def test_reasoning_of_an_earlier_answer_may_be_left_out_but_not_the_answer() -> None:
    source = "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}"
    answer = say("assistant", "<think>hm", "hm</think>", " forty-two")
    assert render(source, answer).text.strip() == "forty-two"
    dropping = "{% for m in messages %}{{ m.content.split('</think>')[0] }}{% endfor %}"
    with pytest.raises(TemplateError, match=r"leaves out messages\[0\]"):
        render(dropping, answer)


def test_only_blanks_of_a_message_may_be_lost() -> None:
    assert render("{% for m in messages %}{{ m.content | trim }}{% endfor %}", say("user", " q \n")).text == "q"
    with pytest.raises(TemplateError, match=r"leaves out messages\[0\]"):
        render("{% for m in messages %}{{ m.content[1:] }}{% endfor %}", say("user", "question"))


def test_a_repeated_text_is_missed_when_one_of_its_messages_is() -> None:
    with pytest.raises(TemplateError, match=r"leaves out messages\[0\]"):
        render("{{ messages[-1].content }}", say("user", "hi"), say("assistant", "hi"), say("user", "hi"))


def test_a_template_that_can_say_it_in_no_form_refuses_and_names_the_message() -> None:
    talk = (say("user", "lost"), say("assistant", "gone"), say("user", "kept"))
    with pytest.raises(TemplateError, match=r"leaves out messages\[0\], whose role is 'user'") as caught:
        render("{{ messages[-1].content }}", *talk)
    assert caught.value.param == "messages[0]"


def test_a_refusal_carries_the_templates_words_and_the_message_it_was_at() -> None:
    source = (
        "{% for m in messages %}{% if 'bad' in m.content %}{{ raise_exception('no bad words') }}{% endif %}"
        "{{ m.content }}{% endfor %}"
    )
    with pytest.raises(TemplateError, match=r"refuses the conversation: no bad words$") as caught:
        render(source, say("user", "good"), say("assistant", "fine"), say("user", "a bad one"))
    assert caught.value.param == "messages[2]"


def test_a_message_is_named_by_its_place_in_the_request_even_when_it_was_merged() -> None:
    source = STRICT.replace("alternate!", "no").replace("{{ m.role", "{% if 'bad' in m.content %}"
                                                        "{{ raise_exception('bad') }}{% endif %}{{ m.role")  # fmt: skip
    with pytest.raises(TemplateError) as caught:
        render(source, say("user", "a"), say("user", "b"), say("assistant", "c"), say("user", "bad"))
    assert caught.value.param == "messages[3]"


def test_a_long_refusal_is_cut() -> None:
    with pytest.raises(TemplateError) as caught:
        render("{{ raise_exception('x' * 100000) }}", say("user", "q"))
    assert len(caught.value.message) < 1000


@pytest.mark.parametrize("said", ["[1]", "missing", "'\\ud800'", "{'a': messages}", "none"])
def test_a_refusal_can_say_anything(said: str) -> None:
    with pytest.raises(TemplateError) as caught:
        render("{{ raise_exception(" + said + ") }}", say("user", "q"))
    caught.value.message.encode()


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(TemplateError):
        render("{{ '\\ud800' }}{{ messages[0].content }}", say("user", "q"))


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        (ChatPrompt(()), "messages"),
        (ChatPrompt((say("user", "q"), Message("user", (TextPart("see"), IMAGE)))), "messages[1].content[1]"),
        (ChatPrompt((say("user", "q"),), {"messages": []}), "chat_template_kwargs.messages"),
        (ChatPrompt((say("user", "q"),), {"add_generation_prompt": 1}), "chat_template_kwargs.add_generation_prompt"),
        (ChatPrompt((say("user", "q"),), {"bos_token": "x"}), "chat_template_kwargs.bos_token"),
        (ChatPrompt((say("user", "q"),), {"raise_exception": "x"}), "chat_template_kwargs.raise_exception"),
        (ChatPrompt((say("user", "q" * LIMIT_BYTES),)), "messages"),
        (ChatPrompt((say("user", "é" * (LIMIT_BYTES // 2 + 1)),)), "messages"),
    ],
)  # fmt: skip
def test_what_no_template_can_take_is_refused_by_name(prompt: ChatPrompt, param: str) -> None:
    with pytest.raises(TemplateError) as caught:
        compiled(LINES).render(prompt, add_generation_prompt=True)
    assert caught.value.param == param


def test_a_search_that_takes_too_long_is_given_up_between_forms() -> None:
    asked: list[int] = []

    def give_up() -> bool:
        asked.append(1)
        return len(asked) == 3

    with pytest.raises(TemplateError, match="no"):
        compiled("{{ raise_exception('no') }}").render(ChatPrompt(TOOLS), add_generation_prompt=True, give_up=give_up)
    assert len(asked) == 3


@pytest.mark.parametrize(
    "source",
    [
        "{% if %}",
        "{{ x",
        "{% for %}",
        "{{ 'a' | nofilter }}",
        "{% unknown %}",
        "{% break %}",
        "{{ (" * 300,
        "{{ " + "-" * 5000 + "1 }}",
    ],
)
def test_a_template_that_does_not_compile_is_refused(source: str) -> None:
    with pytest.raises(TemplateError, match="does not compile"):
        compiled(source)


def test_variables_of_the_request_reach_the_template() -> None:
    source = "{{ bos_token }}{{ messages[0].content }}{% if thinking is false %}!{% endif %}{{ tools[0] | tojson }}"
    assert render(source, say("user", "q"), thinking=False, tools=[{"name": "f"}]).text == '<s>q!{"name": "f"}'
    assert (
        render("{{ messages[0].content }}{{ tools is none and documents is none }}", say("user", "q")).text == "qTrue"
    )
    assert render("{{ messages[0].content }}{{ add_generation_prompt }}", say("user", "q")).text == "qTrue"


def test_the_neutral_templates_read_like_this() -> None:
    calls = '\n<tool_call>\n{"name": "weather", "arguments": {"city": "Brno"}}\n</tool_call>'
    assert render(CHATML, *TOOLS).text == (
        f"<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nlet me look{calls}<|im_end|>\n"
        "<|im_start|>tool\nsunny<|im_end|>\n<|im_start|>assistant\n"
    )
    assert render(PLAIN, *TOOLS).text == f"User: q\nAssistant: let me look{calls}\nTool: sunny\nAssistant:"


def test_the_neutral_template_fits_the_vocabulary() -> None:
    assert neutral_template(["<|im_start|>", "<|im_end|>"], {}).name == "neutral-chatml"
    assert neutral_template(["<|im_start|>"], {"eos_token": "<|im_end|>"}).name == "neutral-chatml"
    lines = neutral_template(["<s>"], {"eos_token": "</s>"})
    assert (lines.name, "\nUser:" in lines.stop) == ("neutral-plain", True)


def test_the_strings_a_template_gets_are_only_strings() -> None:
    content = forms_of(say("user", "q"))[0].messages[0]["content"]
    assert isinstance(content, str)
    assert type(plain(content)) is str
