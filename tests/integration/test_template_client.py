"""What a template renders where it is asked, and what it is given of tools."""

import hashlib
import os
import signal
from pathlib import Path

import pytest

from appliance.protocol import ChatPrompt, Message, TextPart, Tool, ToolCall
from runtimes.dialects import dialect_of
from runtimes.dialects.tool_prompting import way_of, with_tools
from runtimes.templates.client import TemplateError, TemplateRenderer, TemplateTimeout
from runtimes.templates.known import LONGEST_BYTES, MOST_MESSAGES, is_known
from tests.integration.daemon_gguf import string_of
from tests.integration.test_template_process import CHATML, ask, check_small_model_template, pid_of, renderer, say


def test_a_known_template_renders_short_prompts_where_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    short = [
        ask("hello <|im_end|> é😀"),
        ChatPrompt((say("system", "be terse"), say("developer", "x"), say("user", "q"), say("user", "r"))),
        ChatPrompt((say("user", "q"), Message("assistant", tool_calls=(ToolCall("c", "f", '{"a": 1}'),)))),
    ]
    others = [
        ask("x" * (LONGEST_BYTES + 1)),
        ChatPrompt((say("user", "q"),) * (MOST_MESSAGES + 1)),
        ChatPrompt((say("user", "q"),), {"variable": 1}),
    ]
    with renderer(CHATML) as client:
        wanted = [client.render(prompt) for prompt in (*short, *others)]
    monkeypatch.setattr("runtimes.templates.known._KNOWN", {hashlib.sha256(CHATML.encode()).hexdigest(): "ours"})
    with renderer(CHATML) as client:
        assert [client.render(prompt) for prompt in (*short, *others)] == wanted
        os.kill(pid_of(client), signal.SIGSTOP)
        assert [client.render(prompt) for prompt in short] == wanted[: len(short)]
        with pytest.raises(TemplateError, match="half of a surrogate pair"):
            client.render(ask("\ud800"))
    with renderer(CHATML + " ", time_limit_s=0.3) as client:
        os.kill(pid_of(client), signal.SIGSTOP)
        with pytest.raises(TemplateTimeout):
            client.render(short[0])


def test_the_default_models_template_is_known(model_path: Path) -> None:
    template = string_of(model_path, "tokenizer.chat_template")
    assert is_known(template)
    check_small_model_template(template)


HERMES = (
    "{%- if tools %}<|im_start|>system\n# Tools\n<tools>\n{%- for tool in tools %}\n{{ tool | tojson }}{% endfor %}\n"
    "</tools>"
    "\nCall with <tool_call> tags.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_a_template_that_knows_tools_is_given_them_as_data() -> None:
    tool = Tool("look", "Ends a turn: <|im_end|>", '{"type": "object", "properties": {"wo": {"type": "string"}}}')
    call = Message("assistant", tool_calls=(ToolCall("c1", "look", '{"wo": "hier"}'),))
    result = Message("tool", (TextPart("42"),), tool_call_id="c1")
    prompt = ChatPrompt((Message("user", (TextPart("Hi"),)), call, result), tools=(tool,))
    control = {"<|im_start|>", "<|im_end|>"}
    with TemplateRenderer(HERMES, {}, control_tokens=control) as renderer:
        form = dialect_of(HERMES).calls
        way = way_of(lambda probe: renderer.render(probe).text, form)
        rendered = renderer.render(with_tools(prompt, way, form))
    assert way == "variable"
    text = "".join(segment.text for segment in rendered.segments)
    assert '"name": "look"' in text
    assert '{"name": "look", "arguments": {"wo": "hier"}}' in text
    client_s = [segment.text for segment in rendered.segments if not segment.parse_special]
    assert any("<|im_end|>" in part for part in client_s), "a tool's description could end the turn"
