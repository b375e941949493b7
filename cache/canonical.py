"""What two requests must have in common for one answer to serve both. Pure.

The key is of the whole request; the fingerprint of the request with its last user text blanked. Neither knows how the
answer is sent (streamed or whole), who waits for it, or until when.
"""

import hashlib
import json
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final

from appliance.protocol import ChatPrompt, Request, TextPart

# Of a request: what has no say in the text of its answer.
_SILENT: Final = ("id", "stream", "include_usage", "measure_margin", "hints")


@dataclass(frozen=True, slots=True)
class Identity:
    """Of a request, to the cache."""

    key: bytes  # 32 bytes
    fingerprint: bytes  # 32 bytes
    namespace: str
    text: str  # the last user text: what alone may differ within a fingerprint; "" if there is none
    single_turn: bool  # there is nothing but a system prompt before that text


def identify(request: Request, namespace: str, realm: str) -> Identity:
    """`realm` names what would answer: another model's answers are another's."""
    asked = {name: value for name, value in _fields(request).items() if name not in _SILENT}
    document = {"namespace": namespace, "realm": realm, "step": request.hints.step, "request": asked}
    key, text = _digest(document), _last_user_text(request)
    prompt = request.prompts[0]
    if text is not None and isinstance(prompt, ChatPrompt):
        blanked = (*prompt.messages[:-1], replace(prompt.messages[-1], content=()))
        asked["prompts"] = (replace(prompt, messages=blanked),)
    return Identity(key, _digest(document), namespace, text or "", single_turn=_is_single_turn(request))


def _last_user_text(request: Request) -> str | None:
    """What alone may differ within a fingerprint; None: there is no such text."""
    prompt = request.prompts[0]
    if len(request.prompts) != 1 or not isinstance(prompt, ChatPrompt) or not prompt.messages:
        return None
    last = prompt.messages[-1]
    if last.role != "user" or not all(isinstance(part, TextPart) for part in last.content):
        return None
    return "".join(part.text for part in last.content if isinstance(part, TextPart))


def _is_single_turn(request: Request) -> bool:
    prompt = request.prompts[0]
    return isinstance(prompt, ChatPrompt) and all(
        message.role in ("system", "developer") for message in prompt.messages[:-1]
    )


def _digest(document: dict[str, Any]) -> bytes:
    # Surrogates that no UTF-8 has may come with a JSON escape.
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), default=_plain)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _fields(value: Any) -> dict[str, Any]:
    """Not as `dataclasses.asdict`: that copies everything, which takes longer than all else here."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _plain(value: object) -> object:
    if is_dataclass(value):
        return _fields(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"cannot be part of a key: {type(value).__name__}")
