"""Schemas that are silent about further properties: closed where nothing can be lost, else left alone."""

import copy
from typing import Any

import jsonschema_rs
import pytest
from pydantic import BaseModel

from runtimes.constraints.narrowing import close_objects

TEXT = {"type": "string"}
OPEN: dict[str, Any] = {"type": "object", "properties": {"a": TEXT}}
CLOSED = {**OPEN, "additionalProperties": False}


class _Street(BaseModel):
    name: str
    number: int | None = None


class _Person(BaseModel):
    name: str
    home: _Street
    others: list[_Street] = []


@pytest.mark.parametrize(
    ("schema", "closed"),
    [
        (OPEN, CLOSED),
        ({**OPEN, "required": ["a"]}, {**CLOSED, "required": ["a"]}),
        ({"type": "array", "items": OPEN}, {"type": "array", "items": CLOSED}),
        ({"anyOf": [OPEN, TEXT], "title": "T"}, {"anyOf": [CLOSED, TEXT], "title": "T"}),
        ({"$ref": "#/$defs/x", "$defs": {"x": OPEN}}, {"$ref": "#/$defs/x", "$defs": {"x": CLOSED}}),
        ({"properties": {"b": OPEN}}, {"properties": {"b": CLOSED}, "additionalProperties": False}),
        ({**OPEN, "additionalProperties": OPEN}, {**OPEN, "additionalProperties": CLOSED}),
    ],
)
def test_objects_with_listed_properties_are_closed(schema: Any, closed: Any) -> None:
    made = copy.deepcopy(schema)
    close_objects(made)
    assert made == closed


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {}},
        {**OPEN, "additionalProperties": True},
        {**OPEN, "required": ["b"]},
        {**OPEN, "minProperties": 2},
        {**OPEN, "dependentRequired": {"a": ["b"]}},
        {**OPEN, "enum": [{"b": 1}]},
        {**OPEN, "patternProperties": {"^x": OPEN}},
        {"allOf": [OPEN, {"properties": {"b": TEXT}, "required": ["b"]}]},
        {"oneOf": [OPEN, TEXT]},
        {"anyOf": [OPEN, TEXT], "required": ["b"]},
        {"$ref": "#/$defs/x", "required": ["b"], "$defs": {"x": OPEN}},
        {"$ref": "#/$defs/x", "anyOf": [OPEN], "$defs": {"x": OPEN}},
        {"items": OPEN, "contains": {"properties": {"b": TEXT}, "required": ["b"]}},
        {"not": OPEN},
        {**OPEN, "properties": 5},
        {**OPEN, "required": "a"},
        {**OPEN, "required": [5]},
        True,
    ],
)
def test_what_speaks_of_other_properties_stays_as_it_is(schema: Any) -> None:
    made = copy.deepcopy(schema)
    close_objects(made)
    assert made == schema


def test_a_nested_pydantic_model_keeps_its_instances_and_nothing_else() -> None:
    schema = _Person.model_json_schema()
    close_objects(schema)
    validator = jsonschema_rs.Draft202012Validator(schema)
    person = _Person(name="Ann", home=_Street(name="Elm", number=3), others=[_Street(name="Oak")]).model_dump()
    assert validator.is_valid(person)
    assert not validator.is_valid({**person, "age": 3})
    assert not validator.is_valid({**person, "home": {"name": "Elm", "town": "Ulm"}})
