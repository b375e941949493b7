"""Random JSON Schemas of the kinds that agents send, and some of kinds that nobody should."""

import random
from typing import Any

# More than can be kept; they must be refused by name.
UNSUPPORTED: tuple[dict[str, Any], ...] = (
    {"not": {"type": "string"}},
    {"type": "array", "items": {}, "uniqueItems": True},
    {"type": "array", "contains": {"type": "integer"}},
    {"if": {"type": "string"}, "then": {"minLength": 1}},
    {"type": "object", "dependentRequired": {"a": ["b"]}},
    {"type": "object", "propertyNames": {"pattern": "^a"}},
    {"type": "string", "format": "no-such-format"},
    {"type": "string", "pattern": "a(?=b)"},
)
NAMES = (
    "name",
    "age",
    "größe",
    "日本",
    "a b",
    'quo"te',
    "back\\slash",
    "emoji🙂",
    "x",
    "id",
    "",
    "tab\t",
    "nested",
    "items",
)
FORMATS = ("date", "time", "date-time", "email", "uuid", "ipv4", "ipv6", "hostname", "uri", "duration")
PATTERNS = ("^[a-z]{2,5}$", "^\\d{3}-\\d{2}$", "^(red|green)$", "[A-Z]", "^ä+ß?$", "^$", "^[^\\s@]+@[^\\s@]+$")
MOST_DEEP = 4


class Schemas:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._defs: list[str] = []

    def schema(self) -> dict[str, Any]:
        """An object or an array at its root, with definitions that may refer to themselves."""
        self._defs = [f"d{i}" for i in range(self._random.randrange(3))]
        made = self._object(0) if self._random.random() < 0.8 else self._array(0)
        if self._defs:
            made["$defs"] = {name: self._definition(name) for name in self._defs}
        if self._random.random() < 0.1:
            made.setdefault("properties", {})["odd"] = self._random.choice(UNSUPPORTED)
        return made

    def _definition(self, name: str) -> dict[str, Any]:
        if self._random.random() < 0.5:  # a list of itself, which can end
            more = {"anyOf": [{"$ref": f"#/$defs/{name}"}, {"type": "null"}]}
            return {
                "type": "object",
                "properties": {"value": self._scalar(), "next": more},
                "required": ["value", "next"],
                "additionalProperties": False,
            }
        return self._scalar()

    def _any(self, depth: int) -> dict[str, Any]:
        roll = self._random.random()
        if depth >= MOST_DEEP or roll < 0.5:
            return self._scalar()
        if roll < 0.6 and self._defs:
            return {"$ref": f"#/$defs/{self._random.choice(self._defs)}"}
        if roll < 0.7:
            return {"anyOf": [self._any(depth + 1) for _ in range(self._random.randrange(2, 4))]}
        return self._object(depth) if roll < 0.88 else self._array(depth)

    def _object(self, depth: int) -> dict[str, Any]:
        names = self._random.sample(NAMES, self._random.randrange(1, 5))
        made: dict[str, Any] = {"type": "object", "properties": {name: self._any(depth + 1) for name in names}}
        made["required"] = [name for name in names if self._random.random() < 0.7]
        roll = self._random.random()
        if roll < 0.7:
            made["additionalProperties"] = False
        elif roll < 0.8:
            made["additionalProperties"] = {"type": "integer"}
        return made

    def _array(self, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {
            "type": "array",
            "items": self._any(depth + 1),
            "maxItems": self._random.randrange(1, 5),
        }
        if self._random.random() < 0.4:
            made["minItems"] = 1
        if self._random.random() < 0.2:
            made["prefixItems"] = [self._scalar()]
        return made

    def _scalar(self) -> dict[str, Any]:
        pick, low = self._random.choice, self._random.randrange(4)
        few = self._random.sample(["a", "b", 1, 2.5, None, True, "ünï", {"k": [1]}, ["x"]], 3)
        scalars: tuple[dict[str, Any], ...] = (
            {"type": "boolean"},
            {"type": "null"},
            {"enum": few},
            {"const": pick(["fixed", 7, None, {"deep": ["é", 1]}])},
            {"type": "integer", "minimum": low - 50, "maximum": low + self._random.randrange(200)},
            {"type": "integer", "multipleOf": pick([2, 5, 10]), "minimum": 0, "maximum": 1000},
            {"type": "number", "exclusiveMinimum": 0, "maximum": pick([1, 9.5, 100])},
            {"type": "string", "pattern": pick(PATTERNS)},
            {"type": "string", "format": pick(FORMATS)},
            {"type": ["string", "null"], "maxLength": 12},
            {"type": "string", "minLength": low, "maxLength": low + self._random.randrange(1, 20)},
        )
        return pick(scalars)
