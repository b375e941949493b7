"""The agents of the trace as `trace.toml` has them: what they know, what they ask, and the form of their answers."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

TEXTS: Final = Path(__file__).with_name("trace.toml")
QUEUES: Final = ("billing", "delivery", "warranty", "account", "praise", "escalation", "closed")


def _object(name: str) -> dict[str, Any]:
    properties = {name: {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9 .-]{0,11}$"}}
    schema = {"type": "object", "properties": properties, "required": [name], "additionalProperties": False}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}}


# Fields of a request whose answer then ends within some 20 tokens: the model by itself goes on until it is cut.
FORMS: Final[Mapping[str, Mapping[str, Any]]] = {
    "sentence": {"structured_outputs": {"regex": "[A-Z][A-Za-z0-9 ,'%/_()-]{1,44}\\."}},
    "queue": {"structured_outputs": {"choice": list(QUEUES)}},
    "value": _object("value"),
    "answer": _object("answer"),
}


@dataclass(frozen=True, slots=True)
class Family:
    """Questions that are close to each other."""

    name: str
    same: tuple[str, ...]  # one question in several phrasings
    other: Mapping[str, str]  # other questions, by what sets them apart


@dataclass(frozen=True, slots=True)
class Call:
    """What the user asks, the tool that is called, what comes back and is said of it, and what is asked then."""

    ask: str
    call: str
    result: str
    said: str
    then: str


@dataclass(frozen=True, slots=True)
class Agent:
    name: str
    step: str | None  # the hint, if it sends any
    weight: float  # among the agents with questions
    recurs: float  # share of its tasks in a context that it has been in
    form: str
    prompt: str
    slots: Mapping[str, Sequence[str]]
    families: tuple[Family, ...]
    now: tuple[str, ...]
    sampled: tuple[str, ...]
    talks: tuple[tuple[tuple[str, str], ...], ...]  # turns: the user's text and the assistant's
    calls: tuple[Call, ...]
    tools: tuple[Mapping[str, Any], ...]  # as a request has them


def load(path: Path = TEXTS) -> tuple[Agent, ...]:
    return tuple(map(_agent, tomllib.loads(path.read_text(encoding="utf-8"))["agents"]))


def call_message(name: str, sku: str) -> dict[str, Any]:
    """The assistant's message that makes a call, as a later request sends it back."""
    function = {"name": name, "arguments": json.dumps({"sku": sku})}
    return {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}


def result_message(text: str) -> dict[str, Any]:
    """What a tool gave back for it."""
    return {"role": "tool", "tool_call_id": "call_1", "content": text}


def _agent(table: Mapping[str, Any]) -> Agent:
    families = [
        Family(f"{table['name']}-{number}", tuple(family["same"]), family["other"])
        for number, family in enumerate(table.get("families", ()))
    ]
    return Agent(
        name=table["name"],
        step=table.get("step"),
        weight=table.get("weight", 0),
        recurs=table["recurs"],
        form=table["form"],
        prompt=table["prompt"].strip(),
        slots=table["slots"],
        families=tuple(families),
        now=tuple(table.get("now", ())),
        sampled=tuple(table.get("sampled", ())),
        talks=tuple(tuple((user, assistant) for user, assistant in talk["turns"]) for talk in table.get("talks", ())),
        calls=tuple(Call(**call) for call in table.get("calls", ())),
        tools=tuple(_tool(**tool) for tool in table.get("tools", ())),
    )


def _tool(name: str, description: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {"sku": {"type": "string", "maxLength": 8}},
        "required": ["sku"],
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}
