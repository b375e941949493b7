# ruff: noqa: RUF001 - DeepSeek spells its marks so
"""Chat templates in the manner of each family, short, with all that they do about tools and thoughts."""

QWEN = """\
{%- if tools %}{{ '<|im_start|>system\\n' }}{% if messages[0].role == 'system' %}{{ messages[0].content + '\\n' }}
{%- endif %}{% for tool in tools %}{{ '\\n' }}{{ tool | tojson }}{% endfor %}{{ '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}{{ '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{% endif %}
{%- for m in messages %}
    {%- if m.role == 'user' or (m.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
    {%- elif m.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if m.reasoning_content %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}
        {{- m.content }}
        {%- for call in m.tool_calls or [] %}
            {%- if not loop.first or m.content %}{{ '\\n' }}{% endif %}
            {{- '<tool_call>\\n{"name": "' }}{{ call.function.name }}{{ '", "arguments": ' }}
            {{- call.function.arguments | tojson }}{{ '}\\n</tool_call>' }}
        {%- endfor %}{{ '<|im_end|>\\n' }}
    {%- elif m.role == 'tool' %}{{ '<|im_start|>user\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

SMOLLM3 = QWEN.replace("tools", "xml_tools")

LLAMA3 = """\
{{- bos_token }}
{%- if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set messages = messages[1:] %}
{%- else %}{% set system = '' %}{% endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' + system + '<|eot_id|>' }}
{%- if builtin_tools is defined %}{{ '<|python_tag|>' }}{% endif %}
{%- for m in messages %}
    {%- if m.role == 'user' and loop.first and tools %}
        {{- '<|start_header_id|>user<|end_header_id|>\\n\\n' }}
        {{- 'Respond in the format {"name": function name, "parameters": dictionary of arguments}.\\n\\n' }}
        {%- for t in tools %}{{ t | tojson(indent=4) }}{{ '\\n\\n' }}{% endfor %}{{ m.content + '<|eot_id|>' }}
    {%- elif m.tool_calls %}
        {%- if m.tool_calls | length != 1 %}{{ raise_exception('only single tool-calls at once') }}{% endif %}
        {%- set call = m.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}{{ '}<|eot_id|>' }}
    {%- elif m.role == 'tool' %}{{ '<|start_header_id|>ipython<|end_header_id|>\\n\\n' + m.content + '<|eot_id|>' }}
    {%- else %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""

MISTRAL_V3 = """\
{{- bos_token }}
{%- set users = messages | selectattr('role', 'equalto', 'user') | list %}
{%- for m in messages %}
    {%- if m.role == 'user' %}
        {%- if tools and m == users[-1] %}{{ '[AVAILABLE_TOOLS] [' }}
            {%- for tool in tools %}{{ {'type': 'function', 'function': tool.function} | tojson }}
                {%- if not loop.last %}{{ ', ' }}{% endif %}{% endfor %}{{ '][/AVAILABLE_TOOLS]' }}
        {%- endif %}{{ '[INST] ' + m.content + '[/INST]' }}
    {%- elif m.role == 'system' %}{{ raise_exception('Only user and assistant roles are supported!') }}
    {%- elif m.tool_calls %}{{ '[TOOL_CALLS] [' }}
        {%- for call in m.tool_calls %}
            {{- '{"name": "' + call.function.name + '", "arguments": ' }}{{ call.function.arguments | tojson }}{{ '}' }}
            {%- if not loop.last %}{{ ', ' }}{% endif %}
        {%- endfor %}{{ ']' + eos_token }}
    {%- elif m.role == 'tool' %}{{ '[TOOL_RESULTS] {"content": ' + m.content + '}[/TOOL_RESULTS]' }}
    {%- else %}{{ ' ' + m.content + eos_token }}
    {%- endif %}
{%- endfor %}"""

MISTRAL_V11 = """\
{{- bos_token }}
{%- if tools %}{{ '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{% endif %}
{%- for m in messages %}
    {%- if m.role == 'system' %}{{ '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}
    {%- elif m.role == 'user' %}{{ '[INST]' + m.content + '[/INST]' }}
    {%- elif m.role == 'tool' %}{{ '[TOOL_RESULTS]' + m.content + '[/TOOL_RESULTS]' }}
    {%- else %}{{ m.content }}{% for call in m.tool_calls or [] %}
        {{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' }}{{ call.function.arguments | tojson }}{% endfor %}
        {{- eos_token }}
    {%- endif %}
{%- endfor %}"""

PHI4_MINI = """\
{% for m in messages %}{% if m['role'] == 'system' and 'tools' in m and m['tools'] is not none %}\
{{ '<|system|>' + m['content'] + '<|tool|>' + m['tools'] + '<|/tool|><|end|>' }}\
{% else %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endif %}{% endfor %}\
{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""

DEEPSEEK_R1 = """\
{%- set ns = namespace(system='', is_tool=false) %}
{%- for m in messages %}{% if m.role == 'system' %}{% set ns.system = m.content %}{% endif %}{% endfor %}
{{- bos_token + ns.system }}
{%- for m in messages %}
    {%- if m.role == 'user' %}{{ '<｜User｜>' + m.content }}
    {%- elif m.role == 'assistant' and m.content is none %}{{ '<｜Assistant｜><｜tool▁calls▁begin｜>' }}
        {%- for call in m.tool_calls %}{% if not loop.first %}{{ '\\n' }}{% endif %}
            {{- '<｜tool▁call▁begin｜>' + call.type + '<｜tool▁sep｜>' + call.function.name + '\\n```json\\n' }}
            {{- call.function.arguments + '\\n```<｜tool▁call▁end｜>' }}
        {%- endfor %}{{ '<｜tool▁calls▁end｜><｜end▁of▁sentence｜>' }}
    {%- elif m.role == 'assistant' %}
        {{- '<｜Assistant｜>' + m.content.split('</think>')[-1] + '<｜end▁of▁sentence｜>' }}
    {%- elif m.role == 'tool' %}{{ '<｜tool▁output▁begin｜>' + m.content + '<｜tool▁output▁end｜>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<｜Assistant｜><think>\\n' }}{% endif %}"""

HARMONY = """\
{{- '<|start|>system<|message|>Valid channels: analysis, commentary, final.<|end|>' }}
{%- if messages[0].role == 'developer' or messages[0].role == 'system' %}
    {%- set instructions = messages[0].content %}{% set rest = messages[1:] %}
{%- else %}{% set instructions = '' %}{% set rest = messages %}{% endif %}
{{- '<|start|>developer<|message|>' + instructions }}
{%- if tools %}{{ '\\nnamespace functions {\\n' }}
    {%- for tool in tools %}{{ 'type ' + tool.function.name + ' = (_: ' }}{{ tool.function.parameters | tojson }}
        {{- ') => any;\\n' }}{% endfor %}{{ '}' }}{% endif %}{{ '<|end|>' }}
{%- for m in rest %}
    {%- if m.role == 'assistant' and m.tool_calls %}{% set call = m.tool_calls[0].function %}
        {{- '<|start|>assistant<|channel|>commentary to=functions.' + call.name + ' <|constrain|>json<|message|>' }}
        {{- call.arguments | tojson }}{{ '<|call|>' }}
    {%- elif m.role == 'assistant' %}{{ '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}
    {%- elif m.role == 'tool' %}{{ '<|start|>functions.x to=assistant<|channel|>commentary<|message|>' }}
        {{- m.content + '<|end|>' }}
    {%- else %}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"""

GEMMA = """\
{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}\
{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('Conversation roles must alternate user/assistant/...') }}{% endif %}\
{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + m.content + '<end_of_turn>\\n' }}\
{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""

SMOLLM2 = """\
{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

FAMILIES = {
    "qwen": (QWEN, "hermes", "variable"),
    "smollm3": (SMOLLM3, "hermes", "variable"),
    "llama3": (LLAMA3, "llama3", "variable"),
    "mistral-v3": (MISTRAL_V3, "mistral-list", "variable"),
    "mistral-v11": (MISTRAL_V11, "mistral", "variable"),
    "phi4-mini": (PHI4_MINI, "phi4", "attribute"),
    "deepseek-r1": (DEEPSEEK_R1, "deepseek", "described"),
    "gpt-oss": (HARMONY, "harmony", "variable"),
    "gemma": (GEMMA, "hermes", "described"),
    "smollm2": (SMOLLM2, "hermes", "described"),
}
