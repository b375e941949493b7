"""What can be said of a JSON Schema by looking at it. Pure: it knows no grammar."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

# Beyond these a grammar takes seconds to make and every token tenths of a second (measured: 4,000 optional properties
# take 1.2 s and 80 ms, 500 take 30 and 2). OpenAI takes 5,000 properties, all of them required.
MAX_PROPERTIES = 5000
MAX_OPTIONAL_PROPERTIES = 500  # of one object
MAX_BYTES = 2**20
MAX_TRIES = 300  # to find where an error is

JSON_ANSWER: "JsonCompileOptions" = {
    "lenient": False,  # a client may not switch checks off
    # A blank, or a new line and its indentation. Were any blanks allowed, a sampled answer could be nothing else.
    "whitespace_pattern": r"\x20|\x0A(\x20{0,24}|\x09{0,8})",
}

_SCHEMAS = ("items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames",
            "unevaluatedItems", "unevaluatedProperties", "additionalItems")  # fmt: skip
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_REFERRED_TO = ("$defs", "definitions", "$schema", "$id")


def too_large(schema: Any) -> str | None:
    """Why a schema is more than can be held to, or None."""
    total = 0
    pending = [("#", schema)]
    while pending:
        pointer, part = pending.pop()
        if not isinstance(part, dict):
            continue
        properties = part.get("properties", {})
        if isinstance(properties, dict):
            required = part.get("required")
            names = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
            total += len(properties.keys() | names)
            optional = len(properties.keys() - names)
            if optional > MAX_OPTIONAL_PROPERTIES:
                return (
                    f"an object has {optional} optional properties; {MAX_OPTIONAL_PROPERTIES} are the limit: "
                    f"make them required (at {pointer})"
                )
        pending += [(pointer + step, child) for step, child in children(part)]
    return f"it has {total} properties; {MAX_PROPERTIES} are the limit" if total > MAX_PROPERTIES else None


def children(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The schemas inside one, with the JSON pointer to each."""
    for keyword in _SCHEMAS:
        if isinstance(schema.get(keyword), dict | bool):
            yield f"/{keyword}", schema[keyword]
    for keyword in _LISTS:
        if isinstance(schema.get(keyword), list):
            yield from ((f"/{keyword}/{i}", part) for i, part in enumerate(schema[keyword]))
    for keyword in _NAMED:
        if isinstance(schema.get(keyword), dict):
            yield from ((f"/{keyword}/{_escaped(name)}", part) for name, part in schema[keyword].items())


def locate(schema: dict[str, Any], error_of: Callable[[object], str | None]) -> str:
    """JSON pointer to the innermost schema that has the error of the whole; `#` is the whole."""
    context = {keyword: schema[keyword] for keyword in _REFERRED_TO if keyword in schema}
    wanted = error_of(schema)
    pointer, tries = "#", 0
    found: Any = schema
    while found is not None:
        here, found = found, None
        for step, part in children(here):
            if not isinstance(part, dict):
                continue
            tries += 1
            if tries > MAX_TRIES:
                return pointer
            if error_of({**context, **part}) == wanted:
                pointer, found = pointer + step, part
                break
    return pointer


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
