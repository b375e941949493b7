"""What an answer is held to is narrower than its schema, where that makes better answers."""

from collections.abc import Iterator
from typing import Any, Final

from runtimes.constraints.formats import narrow_formats
from runtimes.constraints.schema import children

# With these two schemas speak of one value, and what one lists the other may not.
_COMBINING: Final = frozenset(
    ("allOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "patternProperties", "contains",
     "unevaluatedProperties")
)  # fmt: skip
_ELSEWHERE: Final = frozenset(("$ref", "anyOf"))
_BESIDE_ELSEWHERE: Final = frozenset(
    ("type", "title", "description", "default", "examples", "deprecated", "$defs", "definitions", "$schema", "$id",
     *_ELSEWHERE)
)  # fmt: skip
_OF_OTHERS: Final = frozenset(
    ("additionalProperties", "propertyNames", "minProperties", "dependentRequired", "dependencies", "enum", "const")
)


def narrow(schema: Any) -> None:
    """Changes a schema in place: all that it still allows was allowed before, and something still is."""
    narrow_formats(schema)
    close_objects(schema)


def close_objects(schema: Any) -> None:
    """No property beyond the listed ones, where an object's schema lists some and is silent about others.

    JSON Schema lets anything follow then, and a small model goes on inventing properties until its tokens are spent.
    `"additionalProperties": true` still asks for them. A schema that combines others is left as it is.
    """
    parts = list(_parts(schema))
    if any(map(_combines, parts)):
        return
    for part in parts:
        listed, required = part.get("properties"), part.get("required", [])
        if not isinstance(listed, dict) or not listed or not isinstance(required, list) or part.keys() & _OF_OTHERS:
            continue
        if all(isinstance(name, str) and name in listed for name in required):
            part["additionalProperties"] = False


def _combines(part: dict[str, Any]) -> bool:
    if part.keys() & _ELSEWHERE and part.keys() - _BESIDE_ELSEWHERE:
        return True
    return bool(part.keys() & _COMBINING) or part.keys() >= _ELSEWHERE


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    pending = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            yield part
            pending += [child for _, child in children(part)]
