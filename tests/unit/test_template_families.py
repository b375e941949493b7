"""Templates written in the manner of each model family take every conversation a client may send, and lose nothing."""

import functools
import itertools
import json
from datetime import UTC, datetime
from typing import Any

import jinja2.ext
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment

from appliance.protocol import ChatPrompt, Message, Role, TextPart, ToolCall
from runtimes.templates.chat_template import ChatTemplate
from runtimes.templates.neutral import CHATML, PLAIN
from runtimes.templates.result import Rendered

NOW = datetime(2026, 3, 5, tzinfo=UTC)
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
LIMIT_BYTES = 2**20

SMOLLM2 = """\
{% for m in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
{{ '<|im_start|>system\\nYou are a small model.<|im_end|>\\n' }}{% endif %}\
{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

HERMES = """\
{%- if tools %}<|im_start|>system
You may call tools.{% for tool in tools %}

{{ tool | tojson }}{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}
    {%- if message.role in ('system', 'user') or (message.role == 'assistant' and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant' }}
        {%- if message.content %}{{ '\\n' + message.content }}{% endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}{% set tool_call = tool_call.function %}{% endif %}
            {{- '\\n<tool_call>\\n{"name": "' ~ tool_call.name ~ '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

QWEN3 = """\
{%- set ns = namespace(searching=true, last=messages | length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = messages | length - 1 - loop.index0 %}
    {%- if ns.searching and message.role == 'user' and not (message.content.startswith('<tool_response>')
        and message.content.endswith('</tool_response>')) %}
        {%- set ns.searching = false %}{% set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set content = message.content %}{% set reasoning = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.index0 > ns.last and reasoning %}{{ '<think>\\n' + reasoning + '\\n</think>\\n\\n' }}{% endif %}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n{"name": "' }}{{ call.function.name }}{{ '", "arguments": ' }}
            {%- if call.function.arguments is string %}{{ call.function.arguments }}
            {%- else %}{{ call.function.arguments | tojson }}{% endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- endif %}"""

LLAMA31 = """\
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}{% set messages = messages[1:] %}
{%- else %}{% set system_message = '' %}{% endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday: ' + strftime_now('%d %b %Y') + '\\n\\n' }}
{{- system_message }}{{ '<|eot_id|>' }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim }}
        {{- '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}
            {{- raise_exception('This model takes one tool call at a time') }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}{{ tool_call.arguments | tojson }}{{ '}<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
        {%- if message.content is mapping or message.content is iterable %}{{ message.content | tojson }}
        {%- else %}{{ message.content }}{% endif %}
        {{- '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""

LLAMA2 = """\
{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = messages[0]['content'] %}\
{% else %}{% set rest = messages %}{% set system = false %}{% endif %}\
{% for message in rest %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('Conversation roles must alternate user/assistant/...') }}{% endif %}\
{% if loop.index0 == 0 and system != false %}{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + \
message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}\
{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content | trim + ' [/INST]' }}\
{% elif message['role'] == 'assistant' %}{{ ' ' + content | trim + ' ' + eos_token }}{% endif %}{% endfor %}"""

MISTRAL_V3 = """\
{%- if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set rest = messages[1:] %}
{%- else %}{% set rest = messages %}{% endif %}
{%- set users = rest | selectattr('role', 'equalto', 'user') | list %}
{%- set ns = namespace(index=0) %}
{%- for message in rest %}
    {%- if not (message.role == 'tool' or message.role == 'tool_results'
                or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message['role'] == 'user') != (ns.index % 2 == 0) %}
            {{- raise_exception('After the optional system message, roles must alternate user/assistant') }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in rest %}
    {%- if message['role'] == 'user' %}
        {%- if loop.last and system is defined %}{{ '[INST] ' + system + '\\n\\n' + message['content'] + '[/INST]' }}
        {%- else %}{{ '[INST] ' + message['content'] + '[/INST]' }}{% endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- '[TOOL_CALLS] [' }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function | tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id | length != 9 %}
                {{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}{{ ', ' }}{% else %}{{ ']' + eos_token }}{% endif %}
        {%- endfor %}
    {%- elif message['role'] == 'assistant' %}{{ ' ' + message['content'] | trim + eos_token }}
    {%- elif message['role'] == 'tool' %}
        {%- set content = message.content %}
        {{- '[TOOL_RESULTS] {"content": ' + content | string + ', ' }}
        {%- if not message.tool_call_id is defined or message.tool_call_id | length != 9 %}
            {{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}
        {%- endif %}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}{{ raise_exception('Only user and assistant roles are supported') }}
    {%- endif %}
{%- endfor %}"""

MISTRAL_V7 = """\
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- if messages[0]['content'] is string %}{% set system = messages[0]['content'] %}
    {%- else %}{% set system = messages[0]['content'][0]['text'] %}{% endif %}
    {%- set rest = messages[1:] %}
{%- else %}{% set system = 'Be brief.' %}{% set rest = messages %}{% endif %}
{{- '[SYSTEM_PROMPT]' + system + '[/SYSTEM_PROMPT]' }}
{%- for message in rest %}
    {%- if message['role'] == 'user' %}
        {%- if message['content'] is string %}{{ '[INST]' + message['content'] + '[/INST]' }}
        {%- else %}{{ '[INST]' }}{% for block in message['content'] %}
            {%- if block['type'] == 'text' %}{{ block['text'] }}
            {%- else %}{{ raise_exception('Only text is supported') }}{% endif %}
        {%- endfor %}{{ '[/INST]' }}{% endif %}
    {%- elif message['role'] == 'system' %}{{ '[SYSTEM_PROMPT]' + message['content'] + '[/SYSTEM_PROMPT]' }}
    {%- elif message['role'] == 'assistant' %}
        {%- if message['content'] is string %}{{ message['content'] + eos_token }}
        {%- else %}{{ message['content'][0]['text'] + eos_token }}{% endif %}
    {%- else %}{{ raise_exception('Only user, system and assistant roles are supported!') }}
    {%- endif %}
{%- endfor %}"""

GEMMA2 = """\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}\
{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('Conversation roles must alternate user/assistant/...') }}{% endif %}\
{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}\
{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""

GEMMA3 = """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}{%- set prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}{%- set prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}{%- endif -%}
    {%- set rest = messages[1:] -%}
{%- else -%}{%- set prefix = '' -%}{%- set rest = messages -%}{%- endif -%}
{%- for message in rest -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + (prefix if loop.first else '') }}
    {%- if message['content'] is string -%}{{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}{{ raise_exception('Invalid content type') }}{%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}"""

PHI3 = """\
{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}\
{{ '<|system|>\\n' + message['content'] + '<|end|>\\n' }}{% elif message['role'] == 'user' %}\
{{ '<|user|>\\n' + message['content'] + '<|end|>\\n' }}{% elif message['role'] == 'assistant' %}\
{{ '<|assistant|>\\n' + message['content'] + '<|end|>\\n' }}{% endif %}{% endfor %}\
{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"""

PHI4 = """\
{% for message in messages %}{% if (message['role'] == 'system') %}\
{{ '<|im_start|>system<|im_sep|>' + message['content'] + '<|im_end|>' }}{% elif (message['role'] == 'user') %}\
{{ '<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>' }}{% elif (message['role'] == 'assistant') %}\
{{ '<|im_start|>assistant<|im_sep|>' + message['content'] + '<|im_end|>' }}{% endif %}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}"""

DEEPSEEK = """\
{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}\
{% set ns = namespace(is_first=false, is_tool=false, system='') %}\
{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system = message['content'] %}{%- endif %}\
{%- endfor %}{{ bos_token }}{{ ns.system }}\
{%- for message in messages %}\
{%- if message['role'] == 'user' %}{%- set ns.is_tool = false %}{{ '<|User|>' + message['content'] }}{%- endif %}\
{%- if message['role'] == 'assistant' and message['content'] is none %}\
{%- set ns.is_tool = false %}{%- for tool in message['tool_calls'] %}\
{{ '<|Assistant|><|tool▁calls▁begin|><|tool▁call▁begin|>' + tool['type'] + '<|tool▁sep|>' \
+ tool['function']['name'] + '\\n' + '```json' + '\\n' + tool['function']['arguments'] + '\\n' + '```' \
+ '<|tool▁call▁end|>' }}{%- endfor %}{{ '<|tool▁calls▁end|><|end▁of▁sentence|>' }}{%- endif %}\
{%- if message['role'] == 'assistant' and message['content'] is not none %}\
{%- if ns.is_tool %}{{ '<|tool▁outputs▁end|>' + message['content'] + '<|end▁of▁sentence|>' }}\
{%- set ns.is_tool = false %}{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}\
{% set content = content.split('</think>')[-1] %}{% endif %}\
{{ '<|Assistant|>' + content + '<|end▁of▁sentence|>' }}{%- endif %}{%- endif %}\
{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true %}\
{{ '<|tool▁outputs▁begin|><|tool▁output▁begin|>' + message['content'] + '<|tool▁output▁end|>' }}{%- endif %}\
{%- endfor -%}{% if add_generation_prompt and not ns.is_tool %}{{ '<|Assistant|><think>\\n' }}{% endif %}"""

HARMONY = """\
{%- macro header(role, channel='') %}{{ '<|start|>' + role }}{% if channel %}{{ '<|channel|>' + channel }}{% endif %}
{{- '<|message|>' }}{% endmacro %}
{%- macro system_part() %}You are a model.
Current date: {{ strftime_now('%Y-%m-%d') }}
Reasoning: {{ reasoning_effort if reasoning_effort is defined else 'medium' }}{% endmacro %}
{{- header('system') + system_part() + '<|end|>' }}
{%- if messages[0].role == 'developer' or messages[0].role == 'system' %}
    {%- set instructions = messages[0].content %}{% set rest = messages[1:] %}
    {{- header('developer') + '# Instructions\\n\\n' + instructions + '<|end|>' }}
{%- else %}{% set rest = messages %}{% endif %}
{%- set last_call = namespace(name=none) %}
{%- for message in rest %}
    {%- if message.role == 'assistant' and message.tool_calls %}
        {%- if message.content %}{{ header('assistant', 'analysis') + message.content + '<|end|>' }}{% endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start|>assistant to=functions.' + call.name + '<|channel|>commentary json<|message|>' }}
        {{- call.arguments | tojson }}{{ '<|call|>' }}
        {%- set last_call.name = call.name %}
    {%- elif message.role == 'assistant' %}{{ header('assistant', 'final') + message.content + '<|end|>' }}
    {%- elif message.role == 'tool' %}
        {%- if last_call.name is none %}{{ raise_exception('a tool message needs a call before it') }}{% endif %}
        {{- '<|start|>functions.' + last_call.name + ' to=assistant<|channel|>commentary<|message|>' }}
        {{- message.content | tojson }}{{ '<|end|>' }}
    {%- elif message.role == 'user' %}{{ header('user') + message.content + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"""

PARTS_ONLY = """\
<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}:{% for line in message['content'] %}\
{% if line['type'] == 'text' %}{{ ' ' + line['text'] }}{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}\
{% endfor %}<end_of_utterance>
{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"""

FAMILIES = {
    "smollm2": SMOLLM2,
    "hermes": HERMES,
    "qwen3": QWEN3,
    "llama2": LLAMA2,
    "llama3.1": LLAMA31,
    "mistral-v3": MISTRAL_V3,
    "mistral-v7": MISTRAL_V7,
    "gemma2": GEMMA2,
    "gemma3": GEMMA3,
    "phi3": PHI3,
    "phi4": PHI4,
    "deepseek": DEEPSEEK,
    "harmony": HARMONY,
    "parts-only": PARTS_ONLY,
    "neutral-chatml": CHATML,
    "neutral-plain": PLAIN,
}


def compiled(source: str) -> ChatTemplate:
    return ChatTemplate(source, SPECIAL, ("<|im_end|>",), output_limit_bytes=LIMIT_BYTES, now=lambda: NOW)


TEMPLATES = {name: compiled(source) for name, source in FAMILIES.items()}


def say(role: Role, *texts: str, **rest: Any) -> Message:
    return Message(role, tuple(map(TextPart, texts)), **rest)


def call(call_id: str = "call_abcdef", name: str = "weather", arguments: str = '{"city": "Zürich"}') -> ToolCall:
    return ToolCall(call_id, name, arguments)


def render(family: str, *messages: Message, **template_kwargs: Any) -> Rendered:
    return TEMPLATES[family].render(ChatPrompt(messages, template_kwargs), add_generation_prompt=True)


CONVERSATIONS: dict[str, tuple[Message, ...]] = {
    "one user": (say("user", "first question"),),
    "system and user": (say("system", "be terse"), say("user", "first question")),
    "two turns": (say("user", "first question"), say("assistant", "an answer"), say("user", "second question")),
    "developer": (say("developer", "be terse"), say("user", "first question")),
    "system and developer": (say("system", "be terse"), say("developer", "be kind"), say("user", "first question")),
    "late system": (say("user", "first question"), say("assistant", "an answer"), say("system", "now be terse"),
                    say("user", "second question")),
    "system last": (say("user", "first question"), say("system", "now be terse")),
    "system only": (say("system", "greet the visitor"),),
    "two users": (say("user", "first question"), say("user", "second question")),
    "two assistants": (say("user", "first question"), say("assistant", "an answer"), say("assistant", "and more")),
    "assistant first": (say("assistant", "welcome here"), say("user", "first question")),
    "assistant last": (say("user", "first question"), say("assistant", "an answer")),
    "null content": (say("user"), say("assistant"), say("user", "second question")),
    "empty text": (say("user", ""), say("assistant", ""), say("user", "second question")),
    "parts": (say("system", "be", "terse"), say("user", "first question", "in two parts")),
    "unicode and NUL": (say("user", "žluťoučký 😀 \u202e mirrored \u2028 line \0 end"),),
    "blanks around": (say("user", "  indented\n\n"),),
    "Jinja in the text": (say("user", "{{ 7 * 7 }}{% raw %} {# no #}"),),
    "tool call": (say("user", "first question"), say("assistant", tool_calls=(call(),)),
                  say("tool", "sunny and mild", tool_call_id="call_abcdef")),
    "tool call and answer": (say("system", "be terse"), say("user", "first question"),
                             say("assistant", tool_calls=(call("123456789"),)),
                             say("tool", "sunny and mild", tool_call_id="123456789"),
                             say("assistant", "it is sunny today"), say("user", "second question")),
    "tool call with words": (say("user", "first question"), say("assistant", "let me look", tool_calls=(call(),)),
                             say("tool", "sunny and mild", tool_call_id="call_abcdef")),
    "two tool calls": (say("user", "first question"),
                       say("assistant", tool_calls=(call("a1"), call("a2", "stocks", '{"names": ["ACME"]}'))),
                       say("tool", "sunny and mild", tool_call_id="a1"), say("tool", "up", tool_call_id="a2")),
    "call without arguments": (say("user", "first question"), say("assistant", tool_calls=(call(arguments=""),)),
                               say("tool", "sunny and mild", tool_call_id="call_abcdef")),
    "call with broken arguments": (say("user", "q"), say("assistant", tool_calls=(call(arguments='{"city": Zü'),)),
                                   say("tool", "no such city", tool_call_id="call_abcdef")),
    "tool without call": (say("user", "first question"), say("tool", "sunny and mild", tool_call_id="gone")),
    "names": (say("user", "first question", name="ann"), say("user", "second question", name="bob")),
    "reasoning": (say("user", "first question"), say("assistant", "<think>\nhm\n</think>\n\nan answer"),
                  say("user", "second question")),
    "everything": (say("assistant", "welcome here"), say("developer", "be terse"), say("user"), say("user", "two"),
                   say("assistant", "look", tool_calls=(call("a1"), call("a2", "stocks", "[1]"))),
                   say("tool", "mild", tool_call_id="a1"), say("system", "hurry up"), say("tool", tool_call_id="a2")),
}  # fmt: skip


def expected_texts(message: Message) -> list[str]:
    """What must be readable in the prompt, in any of the ways that JSON writes it."""
    texts = [part.text for part in message.content if isinstance(part, TextPart)]
    if message.role == "assistant" and any("</think>" in text for text in texts):
        texts = "\n\n".join(texts).rpartition("</think>")[2].split("\n\n")
    return [text.strip() for text in texts if text.strip()] + [tool_call.name for tool_call in message.tool_calls]


@pytest.mark.parametrize(("family", "conversation"), list(itertools.product(FAMILIES, CONVERSATIONS)))
def test_every_family_takes_every_conversation_whole(family: str, conversation: str) -> None:
    messages = CONVERSATIONS[conversation]
    text = render(family, *messages).text
    for message in messages:
        for expected in expected_texts(message):
            assert expected in text or json.dumps(expected, ensure_ascii=False)[1:-1] in text


@functools.cache
def plain_template(source: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.globals["strftime_now"] = NOW.strftime
    return environment.from_string(source)


def reference(source: str, messages: list[dict[str, Any]]) -> str:
    """The same template in jinja2 alone, set up as `apply_chat_template` does."""
    variables = {"messages": messages, "add_generation_prompt": True, "tools": None, "documents": None, **SPECIAL}
    return plain_template(source).render(variables)


plain_talk = st.lists(st.text("ab <|>\n{}é", max_size=20), min_size=1, max_size=4)


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - {"parts-only"}))
@given(texts=plain_talk)
def test_a_conversation_that_needs_no_help_is_rendered_as_jinja2_would(family: str, texts: list[str]) -> None:
    roles: list[Role] = ["user", "assistant"]
    messages = [say(roles[index % 2], text) for index, text in enumerate(texts)]
    rendered = render(family, *messages)
    given: list[dict[str, Any]] = [{"role": roles[index % 2], "content": text} for index, text in enumerate(texts)]
    assert rendered.form == "as-given"
    assert rendered.text == reference(FAMILIES[family], given)


@pytest.mark.parametrize("family", ["hermes", "qwen3", "llama3.1", "harmony", "mistral-v3"])
def test_tool_calls_are_rendered_as_jinja2_would(family: str) -> None:
    arguments = {"city": "Zürich", "days": [1, 2.5, None, True], "deep": {"k": ["v"]}}
    messages = (
        say("user", "q"),
        say("assistant", tool_calls=(call("abcdefghi", arguments=json.dumps(arguments)),)),
        say("tool", '{"sky": "blue"}', tool_call_id="abcdefghi"),
    )
    calls = [{"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": arguments}}]
    given: list[dict[str, Any]] = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": '{"sky": "blue"}', "tool_call_id": "abcdefghi", "name": "weather"},
    ]
    rendered = render(family, *messages)
    assert rendered.form == "as-given"
    assert rendered.text == reference(FAMILIES[family], given)


@pytest.mark.parametrize(
    ("family", "conversation", "form"),
    [
        ("smollm2", "null content", "as-given"), ("smollm2", "late system", "as-given"),
        ("smollm2", "developer", "developer-as-system"), ("smollm2", "tool call", "tools-as-text"),
        ("hermes", "tool call with words", "as-given"), ("hermes", "tool call and answer", "as-given"),
        ("qwen3", "late system", "merged-users"), ("qwen3", "system and developer", "developer-as-system+merged-users"),
        ("llama3.1", "tool call with words", "split-calls"), ("llama3.1", "two tool calls", "split-calls"),
        ("mistral-v3", "tool call", "short-call-ids"), ("mistral-v3", "two users", "merged-users"),
        ("mistral-v3", "two assistants", "alternating"), ("mistral-v3", "system only", "system-in-user"),
        ("mistral-v7", "late system", "as-given"), ("mistral-v7", "tool call", "tools-as-text"),
        ("gemma2", "system and user", "system-in-user"), ("gemma2", "assistant first", "alternating"),
        ("gemma3", "system and user", "as-given"), ("gemma3", "late system", "merged-users"),
        ("phi3", "tool call", "tools-as-text"), ("deepseek", "tool call", "null-content+string-arguments"),
        ("deepseek", "late system", "as-given"),
        ("deepseek", "system and developer", "developer-as-system+merged-users"), ("harmony", "developer", "as-given"),
        ("harmony", "system and developer", "developer-as-system+merged-users"),
        ("harmony", "two tool calls", "split-calls"), ("parts-only", "parts", "text-parts"),
        ("neutral-chatml", "two tool calls", "as-given"), ("neutral-plain", "everything", "developer-as-system"),
    ],
)  # fmt: skip
def test_the_gentlest_form_that_loses_nothing_is_taken(family: str, conversation: str, form: str) -> None:
    assert render(family, *CONVERSATIONS[conversation]).form == form


pieces = st.sampled_from([*"ab \n\"'\\{}<>|é😀\0", "<|im_end|>", "</think>", "{{", "<tool_call>"])
texts = st.lists(pieces, max_size=4).map("".join)
contents = st.lists(st.builds(TextPart, texts), max_size=2).map(tuple)
calls = st.builds(
    ToolCall,
    id=st.sampled_from(["123456789", "call_1", ""]),
    name=st.sampled_from(["f", "get_weather"]),
    # A call that becomes text and holds this mark would be taken for reasoning.
    arguments=st.sampled_from(['{"k": "v", "n": [1, {"x": "y"}]}', "{}"])
    | texts.filter(lambda text: "</think>" not in text),
)
tool_calls = st.lists(calls, min_size=1, max_size=2).map(tuple)
tool_turns = st.builds(Message, st.sampled_from(["assistant", "assistant", "user"]), contents, tool_calls=tool_calls)
turns = st.builds(
    Message,
    role=st.sampled_from(["system", "developer", "user", "assistant", "tool"]),
    content=contents,
    tool_call_id=st.sampled_from([None, "123456789", "call_1"]),
)
message_lists = st.lists(turns | tool_turns, min_size=1, max_size=6)


@pytest.mark.parametrize("family", FAMILIES)
@given(messages=message_lists)
def test_any_list_of_messages_is_rendered_whole(family: str, messages: list[Message]) -> None:
    rendered = render(family, *messages)
    for message in messages:
        for expected in expected_texts(message):
            assert expected in rendered.text or json.dumps(expected, ensure_ascii=False)[1:-1] in rendered.text
    assert all(segment.text for segment in rendered.segments)
