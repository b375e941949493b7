"""`chat_template_kwargs`: extra variables for the model's chat template, as vLLM's clients send them.

The values go through a process boundary into a template; here they are limited to what both can carry.
"""

import math
import re
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, WithJsonSchema

from appliance.api.openai.validation import is_encodable, refuse, shown

MAX_VARIABLES = 64
MAX_VALUES = 10_000  # within one variable; checking them takes a few milliseconds

# The daemon's own variables and functions: a template that lost them would render something else.
RESERVED: Final = frozenset(
    {
        "add_generation_prompt",
        "bos_token",
        "chat_template",
        "continue_final_message",
        "eos_token",
        "messages",
        "raise_exception",
        "strftime_now",
        "tojson",
        "tokenize",
        "tools",
    }
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_INT64 = range(-(2**63), 2**63)


def _check(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if len(value) > MAX_VARIABLES:
        raise refuse(f"must have at most {MAX_VARIABLES} entries, not {len(value)}.")
    for name, content in value.items():
        if not _NAME.fullmatch(name):
            raise refuse(f"must have names of variables as keys, not '{shown(name)}'.")
        if name in RESERVED:
            raise refuse("is set by the server; leave it out.", at=name)
        _check_json(content, name)
    return value


def _check_json(content: Any, name: str) -> None:
    """A loop, not a recursion: nesting is the client's to choose."""
    pending = [content]
    seen = 0
    while pending:
        item = pending.pop()
        seen += 1
        if seen > MAX_VALUES:
            raise refuse(f"holds more than {MAX_VALUES} values.", at=name)
        if isinstance(item, list):
            pending.extend(item)
        elif isinstance(item, dict):
            pending.extend(item.keys())
            pending.extend(item.values())
        elif flaw := _flaw(item):
            raise refuse(flaw, at=name)


def _flaw(scalar: Any) -> str | None:
    match scalar:
        case int() if scalar not in _INT64:
            return "holds an integer of more than 64 bits."
        case float() if not math.isfinite(scalar):
            return "holds a number that is not finite."
        case str() if not is_encodable(scalar):
            return "holds half a surrogate pair, which is not text."
    return None


TemplateKwargs = Annotated[
    dict[str, Any],
    BeforeValidator(_check),
    WithJsonSchema(
        {
            "type": "object",
            "maxProperties": MAX_VARIABLES,
            "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]{0,63}$", "not": {"enum": sorted(RESERVED)}},
        }
    ),
]
