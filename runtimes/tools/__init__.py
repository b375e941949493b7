"""Tools on the model's side: how they are put into a prompt, and the form in which a model calls them.

The form is that of Hermes and Qwen, which most models have met:

    <tool_call>
    {"name": "look", "arguments": {"where": "here"}}
    </tool_call>

once for each call, after any text. `appliance.tool_calls` reads it.
"""

OPENING, CLOSING = "<tool_call>", "</tool_call>"
