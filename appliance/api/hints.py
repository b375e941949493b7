"""Request hints: what an agent says about a step, in `x-appliance-*` headers or under short keys in `metadata`.

Used by every wire format. Knows no body but its `metadata` and `service_tier`. A header beats its metadata
key, because the owner's own proxy can set a header on the way; only privacy is a ratchet: "local-only" in
either place holds. An explicit criticality beats the one that `service_tier` implies.
"""

import re
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Final, Literal, cast, get_args

from appliance.errors import InvalidRequest
from appliance.protocol import CacheMode, Criticality, Hints, Privacy, StepKind

ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast"]

MAX_TASK_CHARACTERS = 128
MAX_TIMEOUT_S = 86_400.0  # a day: longer than any step, and small enough for every clock

_TIER_CRITICALITY: Final[dict[str, Criticality]] = {
    "flex": "sheddable",
    "priority": "critical",
    "fast": "critical",  # OpenAI's newer name for "priority"
}
_ALLOWED: Final[dict[str, tuple[str, ...]]] = {
    "step": get_args(StepKind),
    "criticality": get_args(Criticality),
    "cache": get_args(CacheMode),
    "privacy": get_args(Privacy),
}
_HEADERS: Final[dict[str, str]] = {
    "task": "x-appliance-task",
    "step": "x-appliance-step",
    "criticality": "x-appliance-criticality",
    "cache": "x-appliance-cache",
    "privacy": "x-appliance-privacy",
    "timeout_s": "x-appliance-timeout",
}
_PREFIX: Final = "x-appliance-"
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)
# Control characters, half surrogates, line and paragraph separators: they would break a log line or a table.
_UNPRINTABLE: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})


def parse_hints(
    headers: Mapping[str, str],
    metadata: Mapping[str, str] | None = None,
    service_tier: ServiceTier | None = None,
) -> Hints:
    """`headers` has lower-case names, or ignores case. Other headers and metadata keys are not looked at, but a header
    whose name is nearly a hint's is one that was misspelt.

    Raises `InvalidRequest` that names the header or the metadata key.
    """
    metadata = metadata or {}
    _check_names(headers)
    said: dict[str, str] = {}
    for key, header in _HEADERS.items():
        # The header comes last and wins, but a wrong value is an error wherever it stands.
        in_headers = [(header, value) for value in _header_texts(headers, header)]
        for where, value in ((f"metadata.{key}", metadata.get(key)), *in_headers):
            if value is None:
                continue
            _check(key, where, value)
            if not (key == "privacy" and said.get(key) == "local-only"):
                said[key] = value
    return Hints(
        task=said.get("task"),
        step=cast("StepKind | None", said.get("step")),
        criticality=cast(
            "Criticality", said.get("criticality", _TIER_CRITICALITY.get(service_tier or "auto", "normal"))
        ),
        cache=cast("CacheMode | None", said.get("cache")),
        privacy=cast("Privacy", said.get("privacy", "any")),
        timeout_s=float(said["timeout_s"]) if "timeout_s" in said else None,
    )


def _check_names(headers: Mapping[str, str]) -> None:
    for name in headers:
        lower = name.lower()
        if lower.startswith(_PREFIX) and lower not in _HEADERS.values():
            near = get_close_matches(lower, _HEADERS.values(), 1, 0.85)
            if near:  # of privacy above all: the request would go where it must not
                raise InvalidRequest(f"'{lower[:64]}' is no hint. Did you mean '{near[0]}'?", param=lower[:64])


def _header_texts(headers: Mapping[str, str], name: str) -> list[str]:
    """Its values. Raises `InvalidRequest` when there are several that differ, but for privacy, which any may ask for.

    Servers decode headers as Latin-1, clients write UTF-8: a task must be the same task as in metadata.
    """
    several = getattr(headers, "getlist", None)
    values = several(name) if several is not None else [headers[name]] if name in headers else []
    texts = list(dict.fromkeys(map(_text, values)))
    if len(texts) > 1 and name != _HEADERS["privacy"]:
        raise InvalidRequest(f"'{name}' stands there {len(values)} times, with different values.", param=name)
    return texts


def _text(value: str) -> str:
    if not value.isascii():
        with suppress(UnicodeError):  # then it was Latin-1 after all
            value = value.encode("latin-1").decode()
    return value.strip()


def _check(key: str, where: str, value: str) -> None:
    if key == "task":
        if not 1 <= len(value) <= MAX_TASK_CHARACTERS:
            raise InvalidRequest(f"'{where}' must have 1 to {MAX_TASK_CHARACTERS} characters.", param=where)
        if any(unicodedata.category(character) in _UNPRINTABLE for character in value):
            raise InvalidRequest(f"'{where}' must not contain control characters or line breaks.", param=where)
    elif key == "timeout_s":
        if not _SECONDS.fullmatch(value) or not 0 < float(value) <= MAX_TIMEOUT_S:
            raise InvalidRequest(
                f"'{where}' must be seconds above 0 and up to {MAX_TIMEOUT_S:.0f}, such as \"30\".",
                param=where,
            )
    elif value not in _ALLOWED[key]:
        raise InvalidRequest(f"'{where}' must be one of {', '.join(_ALLOWED[key])}.", param=where)


def _schema(key: str) -> dict[str, Any]:
    match key:
        case "task":
            text = r"^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]+$"
            return {"type": "string", "minLength": 1, "maxLength": MAX_TASK_CHARACTERS, "pattern": text}
        case "timeout_s":
            seconds = r"^(0\.[0-9]{0,8}[1-9]|[1-9][0-9]{0,3}(\.[0-9]{1,9})?)$"
            return {"type": "string", "pattern": seconds}
        case _:
            return {"type": "string", "enum": list(_ALLOWED[key])}


METADATA_SCHEMA: Final[dict[str, Any]] = {key: _schema(key) for key in _HEADERS}
"""JSON Schema of the hints in `metadata`, by key. All that it allows is accepted; longer times are, too."""


def header_parameters() -> list[dict[str, Any]]:
    """The hint headers as OpenAPI parameter objects."""
    return [
        {"name": header, "in": "header", "required": False, "schema": _schema(key)} for key, header in _HEADERS.items()
    ]
