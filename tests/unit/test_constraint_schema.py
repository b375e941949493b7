"""What is said of a schema without compiling it: how large it is, and where an error is."""

from typing import Any

import pytest

from runtimes.constraints.schema import MAX_OPTIONAL_PROPERTIES, MAX_PROPERTIES, children, locate, too_large


def an_object(n: int, *, required: bool) -> dict[str, Any]:
    names = [f"p{i}" for i in range(n)]
    return {"type": "object", "properties": {name: {} for name in names}, "required": names if required else []}


def test_many_required_properties_are_fine_and_many_optional_ones_are_not() -> None:
    assert too_large(an_object(MAX_PROPERTIES, required=True)) is None
    assert too_large(an_object(MAX_OPTIONAL_PROPERTIES, required=False)) is None
    assert "optional" in (too_large(an_object(MAX_OPTIONAL_PROPERTIES + 1, required=False)) or "")
    assert "5001 properties" in (too_large(an_object(MAX_PROPERTIES + 1, required=True)) or "")


def test_properties_are_counted_wherever_they_are() -> None:
    part = an_object(600, required=True)
    schema = {
        "$defs": {"a": part},
        "anyOf": [part, {"items": part}, {"prefixItems": [part]}],
        "properties": {"x": part},
    }
    assert too_large(schema) is None
    assert too_large({"allOf": [schema, schema]}) is not None


@pytest.mark.parametrize(
    "odd",
    [
        {"properties": 3},
        {"properties": {"a": 3}},
        {"required": 3, "properties": {}},
        {"required": [[]], "properties": {"a": True}},
        {"anyOf": {}},
        {"items": 3},
    ],
)
def test_odd_schemas_are_someone_else_s_to_refuse(odd: dict[str, Any]) -> None:
    assert too_large(odd) is None


def test_children_have_pointers() -> None:
    schema = {"properties": {"a/b": {}, "c~": {}}, "items": {}, "anyOf": [{}, True], "additionalProperties": False}
    assert [pointer for pointer, _ in children(schema)] == [
        "/items", "/additionalProperties", "/anyOf/0", "/anyOf/1", "/properties/a~1b", "/properties/c~0",
    ]  # fmt: skip


def error_of(schema: object) -> str | None:
    """Says "bad" of a schema that holds the keyword anywhere, and "lost" of one whose definitions are not there."""
    text = repr(schema)
    if "ref" in text and "$defs" not in text:
        return "lost"
    return "bad" if "'bad'" in text else None


def test_an_error_is_found_in_the_innermost_schema() -> None:
    schema = {"properties": {"x": {}, "y": {"items": {"anyOf": [{"type": "string"}, {"bad": 1}]}}}}
    assert locate(schema, error_of) == "#/properties/y/items/anyOf/1"


def test_definitions_stay_within_reach() -> None:
    schema = {"$defs": {"d": {}}, "properties": {"x": {"$ref": "#/$defs/d", "bad": 1}}}
    assert locate(schema, error_of) == "#/properties/x"


def test_an_error_of_the_whole_is_at_its_root() -> None:
    assert locate({"bad": 1, "properties": {"x": {}}}, error_of) == "#"


def test_the_search_ends() -> None:
    schema: dict[str, Any] = {"properties": {f"p{i}": {} for i in range(5000)} | {"last": {"bad": 1}}}
    assert locate(schema, error_of) == "#"
