"""A minimal instance of a JSON Schema: what the stand-in's model writes where an answer or a call must have a form.

Knows the keywords that tool and answer schemas are made of, and takes the first of what is left open. It leaves
`pattern` and `format` aside.
"""

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any] | bool
WORD = "text"


class NoInstance(ValueError):
    """The schema demands an instance of itself within itself, or refers to nothing."""


def minimal(schema: Schema) -> Any:
    """A small value that the schema admits. Raises `NoInstance`."""
    return _instance(schema, schema, frozenset())


def _instance(schema: Schema, root: Schema, within: frozenset[str]) -> Any:
    """`within` holds the references that lead here: meeting one again would never end."""
    if isinstance(schema, bool):
        return None
    if "$ref" in schema:
        reference = schema["$ref"]
        if reference in within:
            raise NoInstance(f"{reference} demands itself")
        return _instance(_resolved(reference, root), root, within | {reference})
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if alternatives := schema.get("anyOf") or schema.get("oneOf"):
        return _first_that_ends(alternatives, root, within)
    if "allOf" in schema:
        return _instance(_merged(schema), root, within)
    return _of_type(schema, root, within)


def _of_type(schema: Mapping[str, Any], root: Schema, within: frozenset[str]) -> Any:
    match _type(schema):
        case "object":
            return _object(schema, root, within)
        case "array":
            count = schema.get("minItems", 0)
            return [_instance(schema.get("items", True), root, within) for _ in range(count)]
        case "string":
            return WORD.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength")]
        case "integer":
            return _number(schema, above=1)
        case "number":
            return _number(schema, above=0.5)
        case "boolean":
            return True
    return None


def _type(schema: Mapping[str, Any]) -> str | None:
    said = schema.get("type")
    if said is None:
        return "object" if "properties" in schema else None
    return str(said) if isinstance(said, str) else str(said[0])


def _resolved(reference: str, root: Schema) -> Schema:
    found: Any = root
    try:
        for step in reference.removeprefix("#").split("/")[1:]:
            found = found[step.replace("~1", "/").replace("~0", "~")]
    except (KeyError, TypeError):
        raise NoInstance(f"{reference} is nowhere in the schema") from None
    schema: Schema = found
    return schema


def _first_that_ends(alternatives: list[Schema], root: Schema, within: frozenset[str]) -> Any:
    for alternative in alternatives:
        try:
            return _instance(alternative, root, within)
        except NoInstance as error:
            last = error
    raise last


def _merged(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The members of `allOf` as one schema. References among them are not followed, but for a single one."""
    outer = {name: value for name, value in schema.items() if name != "allOf"}
    merged: dict[str, Any] = {}
    for part in (outer, *schema["allOf"]):
        properties = {**merged.get("properties", {}), **part.get("properties", {})}
        required = [*merged.get("required", []), *part.get("required", [])]
        merged |= part
        merged |= {"properties": properties} if properties else {}
        merged |= {"required": required} if required else {}
    return merged


def _object(schema: Mapping[str, Any], root: Schema, within: frozenset[str]) -> dict[str, Any]:
    """The required properties; all (but those that never end) where none is required."""
    properties = schema.get("properties", {})
    if required := schema.get("required"):
        return {name: _instance(properties.get(name, True), root, within) for name in required}
    made = {}
    for name, each in properties.items():
        try:
            made[name] = _instance(each, root, within)
        except NoInstance:
            continue
    return made


def _number(schema: Mapping[str, Any], above: float) -> Any:
    """The least allowed; `above` is how far it stays from a bound that is itself not allowed."""
    if "minimum" in schema:
        return schema["minimum"]
    if "exclusiveMinimum" in schema:
        return schema["exclusiveMinimum"] + above
    if "exclusiveMaximum" in schema:
        return min(0, schema["exclusiveMaximum"] - above)
    return min(0, schema.get("maximum", 0))
