"""Chat templates that were read and do nothing but walk over the messages once.

A template is code that came with a model file, so it runs in a process of its own (`client`), which takes 0.7 ms of a
first token's time when that process sleeps. One of these may run where it is asked for, while the prompt is short: a
long one would keep the interpreter from the step loop. By the SHA-256 of their UTF-8.
"""

import hashlib
from typing import Final

from appliance.protocol import ChatPrompt, TextPart

# Measured on a busy machine: one message of 16 kB takes 0.3 ms, 32 messages that all spell control tokens 1.9 ms.
LONGEST_BYTES: Final = 16_384
MOST_MESSAGES: Final = 16

_KNOWN: Final = {
    "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788": "SmolLM2 Instruct",
}


def is_known(template: str) -> bool:
    return hashlib.sha256(template.encode("utf-8", "surrogatepass")).hexdigest() in _KNOWN


def is_short(prompt: ChatPrompt) -> bool:
    """And plain: what is odd about another is the process's to say."""
    if len(prompt.messages) > MOST_MESSAGES or prompt.template_kwargs:
        return False
    parts = [part for message in prompt.messages for part in message.content]
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    texts += [text for m in prompt.messages for call in m.tool_calls for text in (call.id, call.name, call.arguments)]
    texts += [text for m in prompt.messages for text in (m.name, m.tool_call_id, *m.attributes.values()) if text]
    try:
        return len(parts) <= MOST_MESSAGES and sum(len(text.encode()) for text in texts) <= LONGEST_BYTES
    except UnicodeEncodeError:
        return False
