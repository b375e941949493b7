"""What clients may send and this server does not use: ignored on purpose, or refused.

Every other field of a request model is used. The rule: a field is ignored only when the answer means the same
without it. The README's list of ignored fields is `IGNORED_FIELDS`.
"""

from typing import Any, Final

from pydantic import Field

from appliance.api.openai.validation import refuse

IGNORED_FIELDS: Final[dict[str, str]] = {
    "store": "no answer is kept for later retrieval",
    "user": "it serves OpenAI's abuse monitoring; group steps with the `x-appliance-task` header",
    "safety_identifier": "it serves OpenAI's abuse monitoring",
    "prompt_cache_key": "equal prompt prefixes are shared without a key",
    "prompt_cache_options": "equal prompt prefixes are shared without being asked",
    "prompt_cache_retention": "prefixes stay while memory allows",
    "prediction": "a hint for speed; the answer is the same without it",
    "verbosity": "a style setting of OpenAI's own models; ask for it in a message",
    "messages[].annotations": "notes on an earlier answer, which clients send back with it",
    "messages[].parsed": "what a client made of an earlier answer, sent back with it",
    "messages[].provider_specific_fields": "notes of a gateway on an earlier answer",
    "messages[].reasoning_details": "another form of the thoughts of an earlier answer",
    "messages[].thinking_blocks": "another form of the thoughts of an earlier answer",
    "messages[].tool_calls[].index": "where the call stood in a stream; the list has its order",
    "messages[].tool_calls[].function.parsed_arguments": "what a client made of the arguments",
    "messages[].content[].prompt_cache_breakpoint": "equal prompt prefixes are shared without being marked",
}

REFUSED_FIELDS: Final[dict[str, str]] = {
    "audio": "the local models write text only",
    "modalities": 'the local models write text only; leave it out or send ["text"]',
    "moderation": "no moderation model runs here",
    "web_search_options": "nothing here searches the web",
    "functions": 'it is an old form of "tools", which is supported',
    "function_call": 'it is an old form of "tool_choice", which is supported',
    "suffix": "the local models continue a text and cannot fill a gap in it",
    "stream_options.include_obfuscation": "chunks are not padded; leave it out or send false",
    "messages[].audio": "the local models read text only",
    "messages[].function_call": "it is OpenAI's old form; send 'tool_calls'",
}


def unsupported(field: str) -> str:
    """The sentence, less its subject, that refuses a field of `REFUSED_FIELDS`."""
    return f"is not supported: {REFUSED_FIELDS[field]}."


def refuse_unless_null(value: Any, field: str) -> Any:
    """For validators of fields in `REFUSED_FIELDS` that ask for something whenever they are not null."""
    if value is not None:
        raise refuse(unsupported(field))
    return value


def ignored(field: str) -> Any:
    """A model's field whose value, whatever it is, changes nothing."""
    return Field(default=None, description=f"Ignored: {IGNORED_FIELDS[field]}.")


def refused(field: str) -> Any:
    """A model's field that accepts only what asks for nothing."""
    return Field(default=None, description=f"Not supported: {REFUSED_FIELDS[field]}.")
