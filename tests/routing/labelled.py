"""Prompts of agents with the kind of step that a careful reader takes them for.

`steps.jsonl` has 8 kinds x 10 domains x 4. Half of it ("dev") was there to be looked at while the classifier was made,
and is among its exemplars; the other half ("test") was only counted.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from appliance.api.openai.chat_request import parse_chat
from appliance.protocol import Request

STEPS = Path(__file__).with_name("steps.jsonl")


@dataclass(frozen=True, slots=True)
class Labelled:
    domain: str
    step: str
    request: Request


def labelled(split: Literal["dev", "test"]) -> tuple[Labelled, ...]:
    entries = map(json.loads, STEPS.read_text(encoding="utf-8").splitlines())
    return tuple(
        Labelled(entry["domain"], entry["step"], parse_chat({"model": "auto", **entry["request"]}, {}, "labelled"))
        for entry in entries
        if entry["split"] == split
    )
