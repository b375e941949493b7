"""Templates for models that bring none, or one that does not compile. They take every shape of conversation."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

_CALLS = """\
{%- for call in message.tool_calls %}
{{- '\\n' if not loop.first or message.content }}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments }}}
</tool_call>
{%- endfor %}"""

CHATML = (
    """\
{%- for message in messages %}
{{- '<|im_start|>' ~ message.role ~ '\\n' ~ message.content }}
"""
    + _CALLS
    + """
{{- '<|im_end|>\\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\\n' if add_generation_prompt }}"""
)

PLAIN = (
    """\
{%- for message in messages %}
{{- message.role | capitalize ~ ': ' ~ message.content }}
"""
    + _CALLS
    + """
{{- '\\n' }}
{%- endfor %}
{{- 'Assistant:' if add_generation_prompt }}"""
)


@dataclass(frozen=True, slots=True)
class NeutralTemplate:
    name: str
    source: str
    stop: tuple[str, ...]  # a model that knows no end-of-turn token goes on to write the user's part


def neutral_template(control_tokens: Collection[str], special_tokens: Mapping[str, str]) -> NeutralTemplate:
    """ChatML for a vocabulary that has its tokens, else lines that begin with a role."""
    known = {*control_tokens, *special_tokens.values()}
    if {"<|im_start|>", "<|im_end|>"} <= known:
        return NeutralTemplate("neutral-chatml", CHATML, ())
    return NeutralTemplate("neutral-plain", PLAIN, ("\nUser:", "\nSystem:", "\nTool:"))
